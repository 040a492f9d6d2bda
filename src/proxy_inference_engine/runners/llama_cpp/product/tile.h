// The product itself: a panel of 16 rows times a strip of up to 16 columns. Included by each variant after its lanes
// and its `Chain`, a sum of products of one column with the values that share a scale.

#pragma once

#include "attention.h"
#include "panel.h"

namespace {

using product::COLUMNS;
using product::Piece;

#define INLINED inline __attribute__((always_inline))

// Rounded to bytes as ggml rounds to Q8_0.
template <class Format>
void round_column(const float * values, Piece & piece, int column) {
    const Floats low = load(values), high = load(values + WIDTH / 2);
    const float most = largest(low, high);
    const Floats inverse = fill(most != 0.0f ? 127.0f / most : 0.0f);
    const Quads numbers[2] = {rounded(low * inverse), rounded(high * inverse)};
    const int sums[2] = {total(numbers[0]), total(numbers[1])};
    for (int half = 0; half < 2; half++) store_bytes(piece.q[column] + WIDTH / 2 * half, numbers[half]);
    piece.d[column] = as_half(most / 127.0f);
    piece.offset[0][column] = -Format::OFFSET * (Format::SCALES == 2 ? sums[0] : sums[0] + sums[1]);
    piece.offset[1][column] = -Format::OFFSET * sums[1];
    piece.sum[column] = piece.d[column] * static_cast<float>(sums[0] + sums[1]);
}

// Values that share a scale, times NUM columns.
template <class Format, int NUM, int SCALE>
INLINED void add_quads(const typename Format::Unit & unit, const Piece & piece, int from, Floats (&parts)[GROUP]) {
    constexpr int STEPS = QUADS / Format::SCALES;
    using OneChain = Chain<Format::MOST>;
    OneChain chains[2] = {OneChain(piece.offset[SCALE][from]), OneChain(piece.offset[SCALE][from + NUM - 1])};
#pragma GCC unroll 8
    for (int i = SCALE * STEPS; i < (SCALE + 1) * STEPS; i++) {
        const Quads weights = load(unit.q[i]);
#pragma GCC unroll 2
        for (int c = 0; c < NUM; c++) chains[c].add(weights, piece.q[from + c] + 4 * i);
    }
    const Floats scale = load(unit.d[SCALE]);
#pragma GCC unroll 2
    for (int c = 0; c < NUM; c++) {
        const Floats whole = to_floats(chains[c].total());
        parts[c] = SCALE == 0 ? whole * scale : add_product(parts[c], whole, scale);
    }
}

// GROUP columns at a time: their chains of sums run side by side.
template <class Format, int FROM, int COUNT>
INLINED void add_group(const typename Format::Unit & unit, const Piece & piece, int from, Floats * sums) {
    constexpr int NUM = COUNT - FROM < GROUP ? COUNT - FROM : GROUP;
    Floats parts[GROUP];
    add_quads<Format, NUM, 0>(unit, piece, from + FROM, parts);
    if constexpr (Format::SCALES == 2) add_quads<Format, NUM, 1>(unit, piece, from + FROM, parts);
#pragma GCC unroll 2
    for (int c = FROM; c < FROM + NUM; c++) {
        sums[c] = add_product(sums[c], parts[c - FROM], fill(piece.d[from + c]));
        if constexpr (Format::HAS_MINIMUM) {
            sums[c] = take_product(sums[c], load(unit.minimum), fill(piece.sum[from + c]));
        }
    }
    if constexpr (FROM + NUM < COUNT) add_group<Format, FROM + NUM, COUNT>(unit, piece, from, sums);
}

template <class Format, int COUNT>
void add_units(const void * panel, const Piece * strip, int units, int from, product::Sums & to) {
    const auto unit = static_cast<const typename Format::Unit *>(panel);
    Floats sums[COUNT];
    for (int c = 0; c < COUNT; c++) sums[c] = load(to[from + c]);
    for (int u = 0; u < units; u++) add_group<Format, 0, COUNT>(unit[u], strip[u], from, sums);
    for (int c = 0; c < COUNT; c++) store(to[from + c], sums[c]);
}

// COUNT columns at once and those that are left by halves of that, where three quarters are needed. Not by one function
// for each number of columns: they would take a quarter of a minute to compile.
template <class Format, int COUNT>
void add_columns(const void * panel, const Piece * strip, int units, int from, int columns, product::Sums & sums) {
    for (; from + COUNT - COUNT / 4 <= columns; from += COUNT) {
        add_units<Format, COUNT>(panel, strip, units, from, sums);
    }
    if constexpr (COUNT > 1) add_columns<Format, COUNT / 2>(panel, strip, units, from, columns, sums);
}

template <class Format>
void compute(const void * panel, const Piece * strip, int units, int columns, product::Sums & sums) {
    add_columns<Format, BREADTH>(panel, strip, units, 0, columns, sums);
}

// As many multiplications as there can be, with all numbers in registers and weights small enough for every variant.
// The result keeps the compiler from leaving it all out, and `hidden` from doing it once.
int32_t peak(int64_t times) {
    const int8_t column[4] = {1, 1, 1, 1};
    Chain<FormatQ4_K::MOST> chains[PEAK_CHAINS];
    Quads hidden = fill(0x01010101u);
    for (int64_t t = 0; t < times; t++) {
#pragma GCC unroll 8
        for (int i = 0; i < QUADS; i++) {
#pragma GCC unroll 16
            for (auto & chain : chains) {
                hide(hidden);
                chain.add(hidden, column);
            }
        }
    }
    int32_t found = 0;
    for (auto & chain : chains) found += total(chain.total());
    return found;
}

template <class Format>
constexpr product::Kernel make_kernel() {
    static_assert(sizeof(typename Format::Unit) <= product::MAX_UNIT_BYTES);
    return {WIDTH * Format::UNITS, sizeof(typename Format::Block), sizeof(typename Format::Unit),
            round_column<Format>,  pack<Format>,                   compute<Format>};
}

constexpr product::Variant make_variant(const char * name) {
    return {name,
            make_kernel<FormatQ8_0>(),
            make_kernel<FormatQ4_K>(),
            make_kernel<FormatQ5_K>(),
            make_kernel<FormatQ6_K>(),
            attend<BREADTH>,
            QUADS * PEAK_CHAINS * 4 * ROWS,
            peak};
}

}  // namespace
