// One column alone: where a single stream decodes. 16 rows at a time are multiplied as they lie, and only the sums are
// turned, which are fewer than the weights. To the bit what the chains make of it. Included after `chains.h` by each
// variant that has `multiply_rows`, the sums of 32 values of each row times those of the column.

#pragma once

namespace {

// What `Rows::halves` gives, without a way through memory, which takes longer than the rest.
INLINED Floats scales_of(const Rows & rows, size_t offset) {
    uint16_t d[ROWS];
    for (int i = 0; i < ROWS; i++) std::memcpy(d + i, rows.at[i] + offset, sizeof(uint16_t));
    const __m128i low = _mm_setr_epi16(d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]);
    const __m128i high = _mm_setr_epi16(d[8], d[9], d[10], d[11], d[12], d[13], d[14], d[15]);
    return from_halves(low, high);
}

void multiply_column(const char * first, size_t row_bytes, int count, const Piece * strip, int units, const char * next,
                     float * to) {
    using Block = FormatQ8_0::Block;
    constexpr int UNIT_BYTES = ROWS * sizeof(Block);
    const Rows rows(first, row_bytes, count);
    Floats sum = fill(0.0f);
    for (int u = 0; u < units; u++) {
        for (int at = 0; at < UNIT_BYTES; at += 64) __builtin_prefetch(next + UNIT_BYTES * u + at);
        const size_t block = sizeof(Block) * u;
        const Quads whole = multiply_rows(rows, block + offsetof(Block, q), strip[u].q[0]);
        sum = add_product(sum, to_floats(whole) * scales_of(rows, block), fill(strip[u].d[0]));
    }
    store(to, sum);
}

constexpr product::Variant with_column(product::Variant variant) {
    variant.q8_0.multiply_column = multiply_column;
    for (auto kernel : {&product::Variant::q8_0, &product::Variant::q4_k, &product::Variant::q5_k,
                        &product::Variant::q6_k}) {
        (variant.*kernel).least_columns = 1;
    }
    return variant;
}

}  // namespace
