// Rows of Q8_0 times one column, AVX2: with `RowProduct`, which multiplies 32 values of a row in one way or the other.

#pragma once

#include "chains.h"

namespace {

INLINED __m256i add_words(__m256i a, __m256i b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

INLINED __m256i add_pairs(__m256i a, __m256i b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

INLINED __m256i read_bytes(const void * from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }

INLINED Quads multiply_rows(const Rows & rows, size_t offset, const int8_t * values) {
    const RowProduct product(read_bytes(values));
    const auto row = [&](int i) __attribute__((always_inline)) { return product.of(read_bytes(rows.at[i] + offset)); };
    const auto four = [&](int i) __attribute__((always_inline)) {
        const __m256i sums = add_pairs(add_words(row(i), row(i + 1)), add_words(row(i + 2), row(i + 3)));
        return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    };
    return {_mm256_set_m128i(four(4), four(0)), _mm256_set_m128i(four(12), four(8))};
}

INLINED Floats from_halves(__m128i low, __m128i high) { return {_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)}; }

}  // namespace

#include "column.h"
