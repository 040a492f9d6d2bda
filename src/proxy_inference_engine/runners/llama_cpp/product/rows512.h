// Rows of Q8_0 times one column, AVX-512.

#pragma once

#include "chains.h"

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

// The instruction takes one side without a sign: 128 is added to each weight, and what that adds is taken away first.
INLINED Quads multiply_rows(const Rows & rows, size_t offset, const int8_t * values) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80)), none = _mm512_setzero_si512();
    const __m512i column = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i *>(values)));
    const __m512i begin = _mm512_sub_epi32(none, _mm512_dpbusd_epi32(none, flip, column));
    __m512i sums[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int row = i < 4 ? i : 4 + i;  // so that the sums come out in the order of the rows
        const __m512i weights = two_rows(rows.at[row] + offset, rows.at[row + 4] + offset);
        sums[i] = _mm512_dpbusd_epi32(begin, _mm512_xor_si512(weights, flip), column);
    }
    const __m512i a = add_pairs(add_words(sums[0], sums[1]), add_words(sums[2], sums[3]));
    const __m512i b = add_pairs(add_words(sums[4], sums[5]), add_words(sums[6], sums[7]));
    return {_mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd))};
}

INLINED Floats from_halves(__m128i low, __m128i high) { return {_mm512_cvtph_ps(_mm256_set_m128i(high, low))}; }

}  // namespace

#include "column.h"
