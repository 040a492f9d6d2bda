// Weights as the product reads them. A panel is 16 rows; a unit of it is 32 values of each row, as unsigned bytes, so
// that one register holds four values of all 16 rows. Each format of ggml says how its rows become units.

#pragma once

#include <immintrin.h>

#include <cstring>

#include "ggml.h"

namespace product {

constexpr int ROWS = 16;   // of a panel: the lanes of a register
constexpr int WIDTH = 32;  // values of a row in a unit
constexpr int QUADS = 8;   // registers of a unit, each four values wide

inline __m512 to_floats(const uint16_t (&halves)[ROWS]) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(halves)));
}

inline float to_float(uint16_t half) { return _cvtsh_ss(half); }

// 32 bytes of each of 16 rows, turned: register i has the i-th four bytes of every row.
struct Turned {
    __m512i quads[QUADS];

    explicit Turned(const void * const (&rows)[ROWS]) {
        for (int half = 0; half < 2; half++) {
            __m512i fours[4];
            for (int i = 0; i < 4; i++) fours[i] = gather(rows, i, 16 * half);
            const __m512i low0 = _mm512_unpacklo_epi32(fours[0], fours[1]);
            const __m512i high0 = _mm512_unpackhi_epi32(fours[0], fours[1]);
            const __m512i low1 = _mm512_unpacklo_epi32(fours[2], fours[3]);
            const __m512i high1 = _mm512_unpackhi_epi32(fours[2], fours[3]);
            quads[4 * half + 0] = _mm512_unpacklo_epi64(low0, low1);
            quads[4 * half + 1] = _mm512_unpackhi_epi64(low0, low1);
            quads[4 * half + 2] = _mm512_unpacklo_epi64(high0, high1);
            quads[4 * half + 3] = _mm512_unpackhi_epi64(high0, high1);
        }
    }

    // 16 bytes of the rows i, 4 + i, 8 + i and 12 + i.
    static __m512i gather(const void * const (&rows)[ROWS], int i, int offset) {
        __m512i found = _mm512_castsi128_si512(load(rows[i], offset));
        found = _mm512_inserti32x4(found, load(rows[4 + i], offset), 1);
        found = _mm512_inserti32x4(found, load(rows[8 + i], offset), 2);
        return _mm512_inserti32x4(found, load(rows[12 + i], offset), 3);
    }

    static __m128i load(const void * row, int offset) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i *>(static_cast<const char *>(row) + offset));
    }
};

// The rows of a panel as a format's blocks; where a matrix ends inside a panel its last row stands for the missing ones.
template <class Block>
struct Rows {
    const Block * rows[ROWS];

    Rows(const char * first, size_t row_bytes, int count) {
        for (int i = 0; i < ROWS; i++) {
            rows[i] = reinterpret_cast<const Block *>(first + row_bytes * (i < count ? i : count - 1));
        }
    }

    void next() {
        for (auto & row : rows) row++;
    }
};

// A byte with its sign and one scale for 32 values.
struct FormatQ8_0 {
    struct Block {
        uint16_t d;
        int8_t q[WIDTH];
    };
    struct Unit {
        alignas(64) uint8_t q[QUADS][64];
        float d[1][ROWS];
    };
    static constexpr int UNITS = 1;   // of a block
    static constexpr int SCALES = 1;  // of a unit
    static constexpr int OFFSET = 128;  // what was added to make a value unsigned
    static constexpr bool HAS_MINIMUM = false;

    static void pack(const Rows<Block> & rows, Unit * unit) {
        const void * values[ROWS];
        uint16_t scales[ROWS];
        for (int i = 0; i < ROWS; i++) {
            values[i] = rows.rows[i]->q;
            scales[i] = rows.rows[i]->d;
        }
        const Turned turned(values);
        const __m512i flip = _mm512_set1_epi8(static_cast<char>(OFFSET));
        for (int i = 0; i < QUADS; i++) _mm512_store_si512(unit->q[i], _mm512_xor_si512(turned.quads[i], flip));
        _mm512_store_ps(unit->d[0], to_floats(scales));
    }
};

// 256 values of 16 rows, unpacked to bytes and with their scales as floats, before they are turned.
constexpr int SUPER = 256;

struct Unpacked {
    alignas(32) uint8_t values[ROWS][SUPER];
    alignas(32) float scales[2][ROWS][8];

    const void * row(int i, int unit) const { return values[i] + WIDTH * unit; }

    template <class Unit>
    void turn_values(Unit * units) const {
        for (int u = 0; u < SUPER / WIDTH; u++) {
            const void * rows[ROWS];
            for (int i = 0; i < ROWS; i++) rows[i] = values[i] + WIDTH * u;
            const Turned turned(rows);
            for (int i = 0; i < QUADS; i++) _mm512_store_si512(units[u].q[i], turned.quads[i]);
        }
    }

    // Eight scales of each row, turned: the u-th of every row.
    Turned turn_scales(int which) const {
        const void * rows[ROWS];
        for (int i = 0; i < ROWS; i++) rows[i] = scales[which][i];
        return Turned(rows);
    }
};

inline __m256i load32(const uint8_t * from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)); }
inline void store32(uint8_t * to, __m256i bytes) { _mm256_store_si256(reinterpret_cast<__m256i *>(to), bytes); }

template <int SHIFT>
inline __m256i bits(__m256i bytes, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(bytes, SHIFT), _mm256_set1_epi8(static_cast<char>(mask)));
}

// The eight scales and minimums of Q4_K and Q5_K: six bits each in twelve bytes, times the block's own two.
inline void unpack_scales(const uint8_t (&packed)[12], uint16_t d, uint16_t dmin, float * scales, float * minimums) {
    uint32_t words[3], low[2], high[2];
    std::memcpy(words, packed, sizeof(words));
    low[0] = words[0] & 0x3f3f3f3f;
    low[1] = (words[2] & 0x0f0f0f0f) | ((words[0] >> 6 & 0x03030303) << 4);
    high[0] = words[1] & 0x3f3f3f3f;
    high[1] = (words[2] >> 4 & 0x0f0f0f0f) | ((words[1] >> 6 & 0x03030303) << 4);
    const auto widen = [](const uint32_t (&bytes)[2]) {
        const __m128i found = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(bytes));
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(found));
    };
    _mm256_store_ps(scales, _mm256_mul_ps(widen(low), _mm256_set1_ps(to_float(d))));
    _mm256_store_ps(minimums, _mm256_mul_ps(widen(high), _mm256_set1_ps(to_float(dmin))));
}

// Four or five bits without a sign; a scale and a minimum for 32 values.
template <bool HAS_FIFTH>
struct FormatMinimum {
    struct Four {
        uint16_t d, dmin;
        uint8_t scales[12];
        uint8_t q[128];
    };
    struct Five {
        uint16_t d, dmin;
        uint8_t scales[12];
        uint8_t fifth[32];
        uint8_t q[128];
    };
    using Block = std::conditional_t<HAS_FIFTH, Five, Four>;
    struct Unit {
        alignas(64) uint8_t q[QUADS][64];
        float d[1][ROWS];
        float minimum[ROWS];
    };
    static constexpr int UNITS = SUPER / WIDTH;
    static constexpr int SCALES = 1;
    static constexpr int OFFSET = 0;
    static constexpr bool HAS_MINIMUM = true;

    static void pack(const Rows<Block> & rows, Unit * units) {
        Unpacked unpacked;
        for (int i = 0; i < ROWS; i++) {
            const Block & block = *rows.rows[i];
            unpack_scales(block.scales, block.d, block.dmin, unpacked.scales[0][i], unpacked.scales[1][i]);
            unpack<0>(block, unpacked.values[i]);
            unpack<1>(block, unpacked.values[i]);
            unpack<2>(block, unpacked.values[i]);
            unpack<3>(block, unpacked.values[i]);
        }
        unpacked.turn_values(units);
        const Turned scales = unpacked.turn_scales(0), minimums = unpacked.turn_scales(1);
        for (int u = 0; u < UNITS; u++) {
            _mm512_store_si512(units[u].d[0], scales.quads[u]);
            _mm512_store_si512(units[u].minimum, minimums.quads[u]);
        }
    }

    // 64 values: the low halves of 32 bytes, then the high ones.
    template <int PART>
    static void unpack(const Block & block, uint8_t * values) {
        const __m256i packed = load32(block.q + 32 * PART);
        __m256i low = bits<0>(packed, 15), high = bits<4>(packed, 15);
        if constexpr (HAS_FIFTH) {
            const __m256i fifth = load32(block.fifth);
            low = _mm256_or_si256(low, _mm256_slli_epi16(bits<2 * PART>(fifth, 1), 4));
            high = _mm256_or_si256(high, _mm256_slli_epi16(bits<2 * PART + 1>(fifth, 1), 4));
        }
        store32(values + 64 * PART, low);
        store32(values + 64 * PART + 32, high);
    }
};

using FormatQ4_K = FormatMinimum<false>;
using FormatQ5_K = FormatMinimum<true>;

// Six bits, 32 too many, and a scale for 16 values.
struct FormatQ6_K {
    struct Block {
        uint8_t low[128];
        uint8_t high[64];
        int8_t scales[16];
        uint16_t d;
    };
    struct Unit {
        alignas(64) uint8_t q[QUADS][64];
        float d[2][ROWS];
    };
    static constexpr int UNITS = SUPER / WIDTH;
    static constexpr int SCALES = 2;
    static constexpr int OFFSET = 32;
    static constexpr bool HAS_MINIMUM = false;

    static void pack(const Rows<Block> & rows, Unit * units) {
        Unpacked unpacked;
        for (int i = 0; i < ROWS; i++) {
            const Block & block = *rows.rows[i];
            unpack(block.low, block.high, unpacked.values[i]);
            unpack(block.low + 64, block.high + 32, unpacked.values[i] + 128);
            const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(block.scales)));
            const __m512 scales = _mm512_mul_ps(_mm512_cvtepi32_ps(wide), _mm512_set1_ps(to_float(block.d)));
            _mm256_store_ps(unpacked.scales[0][i], _mm512_castps512_ps256(scales));
            _mm256_store_ps(unpacked.scales[1][i], _mm512_extractf32x8_ps(scales, 1));
        }
        unpacked.turn_values(units);
        for (int half = 0; half < 2; half++) {
            const Turned scales = unpacked.turn_scales(half);
            for (int i = 0; i < 8; i++) _mm512_store_si512(units[4 * half + i / 2].d[i % 2], scales.quads[i]);
        }
    }

    // 128 values, in four runs of 32 that share their bytes.
    static void unpack(const uint8_t * low, const uint8_t * high, uint8_t * values) {
        const __m256i first = load32(low), second = load32(low + 32), two = load32(high);
        const auto join = [](__m256i four, __m256i rest) { return _mm256_or_si256(four, _mm256_slli_epi16(rest, 4)); };
        store32(values, join(bits<0>(first, 15), bits<0>(two, 3)));
        store32(values + 32, join(bits<0>(second, 15), bits<2>(two, 3)));
        store32(values + 64, join(bits<4>(first, 15), bits<4>(two, 3)));
        store32(values + 96, join(bits<4>(second, 15), bits<6>(two, 3)));
    }
};

// How many units a row of so many values has; rows are whole blocks.
inline int num_units(int64_t num_values) { return static_cast<int>(num_values / WIDTH); }

template <class Format>
void pack_panel(const char * first, size_t row_bytes, int count, int units, typename Format::Unit * panel) {
    Rows<typename Format::Block> rows(first, row_bytes, count);
    for (int u = 0; u < units; u += Format::UNITS, rows.next()) Format::pack(rows, panel + u);
}

}  // namespace product
