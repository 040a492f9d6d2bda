// The product itself: a panel of 16 rows times a strip of up to 16 columns.

#pragma once

#include <algorithm>
#include <cmath>

#include "panel.h"

namespace product {

constexpr int COLUMNS = 16;  // of a strip: as many sums as there are registers beside the weights

// 32 values of each column of a strip as bytes with their scale, and what makes up for weights that were made unsigned.
struct Piece {
    alignas(64) int8_t q[COLUMNS][WIDTH];
    float d[COLUMNS];
    int32_t offset[2][COLUMNS];  // -OFFSET times the sum of the values that share a scale
    float sum[COLUMNS];          // d times the sum, for a minimum
};

// One column's part of a piece: rounded to bytes as ggml rounds to Q8_0.
template <class Format>
void round_column(const float * values, Piece & piece, int column) {
    const __m512 low = _mm512_loadu_ps(values), high = _mm512_loadu_ps(values + 16);
    const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const __m512 inverse = _mm512_set1_ps(most != 0.0f ? 127.0f / most : 0.0f);
    const __m512i bytes[2] = {_mm512_cvtps_epi32(_mm512_mul_ps(low, inverse)),
                              _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse))};
    const int sums[2] = {_mm512_reduce_add_epi32(bytes[0]), _mm512_reduce_add_epi32(bytes[1])};
    for (int half = 0; half < 2; half++) {
        _mm_store_si128(reinterpret_cast<__m128i *>(piece.q[column]) + half, _mm512_cvtepi32_epi8(bytes[half]));
    }
    piece.d[column] = to_float(_cvtss_sh(most / 127.0f, _MM_FROUND_TO_NEAREST_INT));
    piece.offset[0][column] = -Format::OFFSET * (Format::SCALES == 2 ? sums[0] : sums[0] + sums[1]);
    piece.offset[1][column] = -Format::OFFSET * sums[1];
    piece.sum[column] = piece.d[column] * static_cast<float>(sums[0] + sums[1]);
}

// GROUP columns at a time: their chains of sums run side by side.
constexpr int GROUP = 2;

template <class Format, int FROM, int SCALE, int NUM>
inline __attribute__((always_inline)) void add_quads(const __m512i (&weights)[QUADS], __m512 scale, const Piece & piece,
                                                     __m512 * sums) {
    constexpr int STEPS = QUADS / Format::SCALES;
    __m512i whole[NUM];
#pragma GCC unroll 4
    for (int c = 0; c < NUM; c++) whole[c] = _mm512_set1_epi32(piece.offset[SCALE][FROM + c]);
#pragma GCC unroll 8
    for (int i = SCALE * STEPS; i < (SCALE + 1) * STEPS; i++) {
#pragma GCC unroll 4
        for (int c = 0; c < NUM; c++) {
            int32_t four;
            std::memcpy(&four, piece.q[FROM + c] + 4 * i, sizeof(four));
            whole[c] = _mm512_dpbusd_epi32(whole[c], weights[i], _mm512_set1_epi32(four));
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < NUM; c++) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(piece.d[FROM + c]));
        sums[FROM + c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole[c]), both, sums[FROM + c]);
    }
}

template <class Format, int FROM, int COUNT>
inline __attribute__((always_inline)) void add_group(const __m512i (&weights)[QUADS],
                                                     const typename Format::Unit & unit, const Piece & piece,
                                                     __m512 * sums) {
    constexpr int NUM = std::min(GROUP, COUNT - FROM);
    add_quads<Format, FROM, 0, NUM>(weights, _mm512_load_ps(unit.d[0]), piece, sums);
    if constexpr (Format::SCALES == 2) {
        add_quads<Format, FROM, 1, NUM>(weights, _mm512_load_ps(unit.d[1]), piece, sums);
    }
    if constexpr (Format::HAS_MINIMUM) {
        const __m512 minimum = _mm512_load_ps(unit.minimum);
#pragma GCC unroll 4
        for (int c = FROM; c < FROM + NUM; c++) {
            sums[c] = _mm512_fnmadd_ps(minimum, _mm512_set1_ps(piece.sum[c]), sums[c]);
        }
    }
    if constexpr (FROM + NUM < COUNT) add_group<Format, FROM + NUM, COUNT>(weights, unit, piece, sums);
}

// Up to COUNT columns of 16 values each; `columns` and the bits of `rows` are those that the matrix really has.
template <class Format, int COUNT>
void compute(const typename Format::Unit * panel, const Piece * strip, int units, float * to, size_t column_bytes,
             int columns, __mmask16 rows) {
    __m512 sums[COUNT];
    for (auto & sum : sums) sum = _mm512_setzero_ps();
    for (int u = 0; u < units; u++) {
        __m512i weights[QUADS];
        for (int i = 0; i < QUADS; i++) weights[i] = _mm512_load_si512(panel[u].q[i]);
        add_group<Format, 0, COUNT>(weights, panel[u], strip[u], sums);
    }
    for (int c = 0; c < columns; c++) {
        _mm512_mask_storeu_ps(reinterpret_cast<char *>(to) + column_bytes * c, rows, sums[c]);
    }
}

template <class Format>
using Compute = void (*)(const typename Format::Unit *, const Piece *, int, float *, size_t, int, __mmask16);

// The smallest that takes so many columns. Not one for each number: they would take a quarter of a minute to compile.
template <class Format>
Compute<Format> find_compute(int columns) {
    static constexpr Compute<Format> by_fours[] = {compute<Format, 4>, compute<Format, 8>, compute<Format, 12>,
                                                   compute<Format, 16>};
    return by_fours[(columns - 1) / 4];
}

}  // namespace product
