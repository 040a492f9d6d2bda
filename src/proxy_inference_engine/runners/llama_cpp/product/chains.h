// The product itself: a panel of 16 rows times a strip of up to 16 columns. Included by each variant that has a `Chain`,
// a sum of products of one column with the values that share a scale, after that.

#pragma once

#include "kernel.h"

namespace {

constexpr int RUN = 8;  // units that all columns are multiplied with while they are in the nearest cache

// All of them in registers.
#define EACH(PANELS, COUNT)                                  \
    _Pragma("GCC unroll 2") for (int p = 0; p < PANELS; p++) \
        _Pragma("GCC unroll 16") for (int c = 0; c < COUNT; c++)

// Values that share a scale, of some panels times NUM columns: all their chains of sums run side by side.
template <class Format, int SCALE, int NUM_PANELS, int NUM>
INLINED void add_quads(const typename Format::Unit * const (&units)[NUM_PANELS], const Piece & piece, int from,
                       Floats (&parts)[NUM_PANELS][NUM]) {
    constexpr int STEPS = QUADS / Format::SCALES;
    using OneChain = Chain<Format::MOST>;
    OneChain chains[NUM_PANELS][NUM];
    EACH(NUM_PANELS, NUM) chains[p][c] = OneChain(piece.offset[SCALE][from + c]);
#pragma GCC unroll 8
    for (int i = SCALE * STEPS; i < (SCALE + 1) * STEPS; i++) {
        Quads weights[NUM_PANELS];
        for (int p = 0; p < NUM_PANELS; p++) weights[p] = load(units[p]->q[i]);
#pragma GCC unroll 4
        for (int c = 0; c < NUM; c++) {
            const auto four = OneChain::read(piece.q[from + c] + 4 * i);
            for (int p = 0; p < NUM_PANELS; p++) chains[p][c].add(weights[p], four);
        }
    }
    EACH(NUM_PANELS, NUM) {
        const Floats whole = to_floats(chains[p][c].total()), scale = load(units[p]->d[SCALE]);
        parts[p][c] = SCALE == 0 ? whole * scale : add_product(parts[p][c], whole, scale);
    }
}

// GROUP columns at a time.
template <class Format, int FROM, int NUM_PANELS, int COUNT>
INLINED void add_group(const typename Format::Unit * const (&units)[NUM_PANELS], const Piece & piece, int from,
                       Floats (&sums)[NUM_PANELS][COUNT]) {
    constexpr int NUM = COUNT - FROM < GROUP ? COUNT - FROM : GROUP;
    Floats parts[NUM_PANELS][NUM];
    add_quads<Format, 0>(units, piece, from + FROM, parts);
    if constexpr (Format::SCALES == 2) add_quads<Format, 1>(units, piece, from + FROM, parts);
    EACH(NUM_PANELS, NUM) {
        Floats & sum = sums[p][FROM + c];
        sum = add_product(sum, parts[p][c], fill(piece.d[from + FROM + c]));
        if constexpr (Format::HAS_MINIMUM) {
            sum = take_product(sum, load(units[p]->minimum), fill(piece.sum[from + FROM + c]));
        }
    }
    if constexpr (FROM + NUM < COUNT) add_group<Format, FROM + NUM>(units, piece, from, sums);
}

// With every unit as many bytes as `panels` says are asked for.
template <class Format, int NUM_PANELS, int COUNT>
void add_units(const Panels & panels, const Piece * strip, int units, int from, product::Sums * to) {
    const typename Format::Unit * unit[NUM_PANELS];
    Floats sums[NUM_PANELS][COUNT];
    for (int p = 0; p < NUM_PANELS; p++) unit[p] = reinterpret_cast<const typename Format::Unit *>(start(panels, p));
    EACH(NUM_PANELS, COUNT) sums[p][c] = load(to[p][from + c]);
    const size_t step = panels.ahead_bytes;
    const char * ahead = panels.ahead + step * units * (from / BREADTH);
    for (int u = 0; u < units; u++, ahead += step) {
        fetch(ahead, step);
        add_group<Format, 0>(unit, strip[u], from, sums);
        for (int p = 0; p < NUM_PANELS; p++) unit[p]++;
    }
    EACH(NUM_PANELS, COUNT) store(to[p][from + c], sums[p][c]);
}

// COUNT columns at once and those that are left by halves of that, where three quarters are needed. Not by one function
// for each number of columns: they would take a quarter of a minute to compile.
template <class Format, int NUM_PANELS, int COUNT>
void add_columns(const Panels & panels, const Piece * strip, int units, int from, int columns, product::Sums * sums) {
    for (; from + COUNT - COUNT / 4 <= columns; from += COUNT) {
        add_units<Format, NUM_PANELS, COUNT>(panels, strip, units, from, sums);
    }
    if constexpr (COUNT > 1) add_columns<Format, NUM_PANELS, COUNT / 2>(panels, strip, units, from, columns, sums);
}

template <class Format, int NUM_PANELS>
void add_runs(const Panels & panels, const Piece * strip, int units, int columns, product::Sums * sums) {
    const int groups = (columns + BREADTH - 1) / BREADTH;
    const size_t step = panels.ahead_bytes / (units * groups);
    for (int u = 0; u < units; u += RUN) {
        const int some = least(RUN, units - u);
        const Panels those{panels.first + sizeof(typename Format::Unit) * u, panels.next, panels.count,
                           panels.ahead + step * groups * u, step};
        add_columns<Format, NUM_PANELS, BREADTH>(those, strip + u, some, 0, columns, sums);
    }
}

// Without what is asked for, which the first of them do.
inline Panels rest(const Panels & panels, int from) {
    if (from == 0) return panels;
    return {start(panels, from), panels.next, panels.count - from};
}

struct Chains {
    static constexpr int PEAK_MULTIPLICATIONS = QUADS * PEAK_CHAINS * 4 * ROWS;

    template <class Format>
    static void compute(const Panels & panels, const Piece * strip, int units, int columns, product::Sums * sums) {
        int first = 0;
        for (; first + PANELS <= panels.count; first += PANELS) {
            add_runs<Format, PANELS>(rest(panels, first), strip, units, columns, sums + first);
        }
        for (; first < panels.count; first++) {
            add_runs<Format, 1>(rest(panels, first), strip, units, columns, sums + first);
        }
    }

    // Weights small enough for every variant. The result keeps the compiler from leaving it all out, and `hidden` from
    // doing it once.
    static int32_t peak(int64_t times) {
        using OneChain = Chain<FormatQ4_K::MOST>;
        const int8_t column[4] = {1, 1, 1, 1};
        OneChain chains[PEAK_CHAINS];
        Quads hidden = fill(0x01010101u);
        for (int64_t t = 0; t < times; t++) {
#pragma GCC unroll 8
            for (int i = 0; i < QUADS; i++) {
#pragma GCC unroll 16
                for (auto & chain : chains) {
                    hide(hidden);
                    chain.add(hidden, OneChain::read(column));
                }
            }
        }
        int32_t found = 0;
        for (auto & chain : chains) found += total(chain.total());
        return found;
    }
};

}  // namespace
