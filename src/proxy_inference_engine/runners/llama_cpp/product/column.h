// One column alone: where a single stream decodes. 16 rows at a time are multiplied as they lie, and only the sums are
// turned, which are fewer than the weights. To the bit what the chains make of it.

#pragma once

#include "kernel.h"

namespace {

// 32 bytes of a row and 32 of another.
INLINED __m512i two_rows(const char * low, const char * high) {
    const auto read = [](const char * row) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(row)); };
    return _mm512_inserti64x4(_mm512_castsi256_si512(read(low)), read(high), 1);
}

INLINED __m512i add_words(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

INLINED __m512i add_pairs(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// The sums of eight registers' halves of eight numbers: of the low ones of the first four, of their high ones, ...
INLINED __m512i add_halves(const __m512i (&sums)[8]) {
    const __m512i a = add_pairs(add_words(sums[0], sums[1]), add_words(sums[2], sums[3]));
    const __m512i b = add_pairs(add_words(sums[4], sums[5]), add_words(sums[6], sums[7]));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

INLINED __m512 scales_of(const char * const (&rows)[ROWS], size_t offset) {
    uint16_t d[ROWS];
    for (int i = 0; i < ROWS; i++) std::memcpy(d + i, rows[i] + offset, sizeof(uint16_t));
    const __m128i low = _mm_setr_epi16(d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]);
    const __m128i high = _mm_setr_epi16(d[8], d[9], d[10], d[11], d[12], d[13], d[14], d[15]);
    return _mm512_cvtph_ps(_mm256_set_m128i(high, low));
}

// The instruction takes one side without a sign: 128 is added to each weight, and what that adds is taken away first.
void multiply_column(const char * first, size_t row_bytes, int count, const Piece * strip, int units, const char * next,
                     float * to) {
    using Block = FormatQ8_0::Block;
    constexpr int UNIT_BYTES = ROWS * sizeof(Block);
    const Rows rows(first, row_bytes, count);
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512 sum = _mm512_setzero_ps();
    for (int u = 0; u < units; u++) {
        const size_t block = sizeof(Block) * u, bytes = block + offsetof(Block, q);
        const __m512i column = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i *>(strip[u].q)));
        const __m512i none = _mm512_setzero_si512();
        const __m512i begin = _mm512_sub_epi32(none, _mm512_dpbusd_epi32(none, flip, column));
        for (int at = 0; at < UNIT_BYTES; at += 64) __builtin_prefetch(next + UNIT_BYTES * u + at);
        __m512i sums[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const int row = i < 4 ? i : 4 + i;  // so that the sums come out in the order of the rows
            const __m512i weights = two_rows(rows.at[row] + bytes, rows.at[row + 4] + bytes);
            sums[i] = _mm512_dpbusd_epi32(begin, _mm512_xor_si512(weights, flip), column);
        }
        const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(add_halves(sums)), scales_of(rows.at, block));
        sum = _mm512_fmadd_ps(scaled, _mm512_set1_ps(strip[u].d[0]), sum);
    }
    _mm512_storeu_ps(to, sum);
}

constexpr product::Variant with_column(product::Variant variant) {
    variant.q8_0.multiply_column = multiply_column;
    return variant;
}

}  // namespace
