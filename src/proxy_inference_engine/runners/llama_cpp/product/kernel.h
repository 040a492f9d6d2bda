// What every variant does alike around its product. Included after its lanes.

#pragma once

#include "attention.h"
#include "panel.h"

namespace {

using product::COLUMNS;
using product::Panels;
using product::Piece;

#define INLINED inline __attribute__((always_inline))

inline const char * start(const Panels & panels, int which) { return panels.first + panels.next * which; }

// Rounded to bytes as ggml rounds to Q8_0.
template <class Format>
void round_column(const float * values, Piece & piece, int column) {
    const Floats low = load(values), high = load(values + WIDTH / 2);
    const float most = largest(low, high);
    const Floats inverse = fill(most != 0.0f ? 127.0f / most : 0.0f);
    const Quads numbers[2] = {rounded(low * inverse), rounded(high * inverse)};
    for (int half = 0; half < 2; half++) store_bytes(piece.q[column] + WIDTH / 2 * half, numbers[half]);
    piece.d[column] = as_half(most / 127.0f);
    if constexpr (Format::SCALES == 2) {
        for (int half = 0; half < 2; half++) piece.offset[half][column] = -Format::OFFSET * total(numbers[half]);
    } else if constexpr (Format::OFFSET != 0 || Format::HAS_MINIMUM) {
        const int sum = total(numbers[0] + numbers[1]);
        piece.offset[0][column] = -Format::OFFSET * sum;
        piece.sum[column] = piece.d[column] * static_cast<float>(sum);
    }
}

// `Way` has `compute` for each format, and `peak`: as many multiplications as there can be, all numbers in registers.
template <class Way, class Format>
constexpr product::Kernel make_kernel() {
    static_assert(sizeof(typename Format::Unit) <= product::MAX_UNIT_BYTES);
    constexpr int LEAST_COLUMNS = 2;  // taking panels apart for one may cost more than it gains
    return {WIDTH * Format::UNITS, sizeof(typename Format::Block), sizeof(typename Format::Unit), LEAST_COLUMNS,
            round_column<Format>,  pack<Format>,                   Way::template compute<Format>};
}

template <class Way>
constexpr product::Variant make_variant(const char * name) {
    return {name,
            make_kernel<Way, FormatQ8_0>(),
            make_kernel<Way, FormatQ4_K>(),
            make_kernel<Way, FormatQ5_K>(),
            make_kernel<Way, FormatQ6_K>(),
            attend<ATTENDED>,
            Way::PEAK_MULTIPLICATIONS,
            Way::peak};
}

}  // namespace
