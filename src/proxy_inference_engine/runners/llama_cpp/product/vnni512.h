// A chain of AVX-512's VNNI: one instruction multiplies 64 unsigned bytes with signed ones and adds them to 16 sums.

#pragma once

#include "avx512.h"

namespace {

// What is loaded is used more than once: two panels share a column's bytes, and four columns a panel's.
constexpr int PANELS = 2;
constexpr int GROUP = 4;
constexpr int BREADTH = 4;
constexpr int ATTENDED = 16;
constexpr int PEAK_CHAINS = 16;

template <int MOST>
struct Chain {
    __m512i sum;

    explicit Chain(int32_t start = 0) : sum(_mm512_set1_epi32(start)) {}

    static __m512i read(const int8_t * column) {
        int32_t four;
        std::memcpy(&four, column, sizeof(four));
        return _mm512_set1_epi32(four);
    }

    void add(Quads weights, __m512i four) { sum = _mm512_dpbusd_epi32(sum, weights.all, four); }

    Quads total() const { return {sum}; }
};

}  // namespace
