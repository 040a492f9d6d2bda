// Weights as the product reads them. A panel is 16 rows; a unit of it is 32 values of each row, as bytes, so that one
// `Quads` holds four values of all 16 rows. Each format of ggml says how its rows become units: its bytes are turned as
// they lie, and taken apart afterwards, for all rows at once.

#pragma once

#include <type_traits>

#include "fetch.h"
#include "ggml.h"

namespace {

using product::ROWS;
using product::WIDTH;

constexpr int QUADS = WIDTH / 4;    // of a unit
constexpr int SUPER = 256;          // values of a block of the K formats
constexpr size_t PART = 4 * QUADS / 2;  // bytes of a row that are turned at once

constexpr uint32_t every_byte(uint32_t value) { return 0x01010101u * value; }

// The rows of a panel at the block that is packed next.
struct Rows {
    const char * at[ROWS];

    // Where a matrix ends inside a panel its last row stands for the missing ones.
    Rows(const char * first, size_t row_bytes, int count) {
        for (int i = 0; i < ROWS; i++) at[i] = first + row_bytes * (i < count ? i : count - 1);
    }

    void skip(size_t bytes) {
        for (auto & row : at) row += bytes;
    }

    Floats halves(size_t offset) const {
        uint16_t found[ROWS];
        for (int i = 0; i < ROWS; i++) std::memcpy(found + i, at[i] + offset, sizeof(uint16_t));
        return to_floats(found);
    }
};

// 16 bytes of each row, turned: `quads[i]` has the i-th four bytes of every row.
struct Turned {
    Quads quads[4];

    Turned(const Rows & rows, size_t offset) {
        Quads fours[4];
        for (int i = 0; i < 4; i++) fours[i] = gather(rows.at, i, offset);
        const Quads low0 = low_words(fours[0], fours[1]), high0 = high_words(fours[0], fours[1]);
        const Quads low1 = low_words(fours[2], fours[3]), high1 = high_words(fours[2], fours[3]);
        quads[0] = low_pairs(low0, low1);
        quads[1] = high_pairs(low0, low1);
        quads[2] = low_pairs(high0, high1);
        quads[3] = high_pairs(high0, high1);
    }

    const Quads & operator[](int i) const { return quads[i]; }
};

inline Quads bits(Quads quads, int shift, uint32_t mask) { return (quads >> shift) & fill(every_byte(mask)); }
inline Floats unsigned_byte(Quads quads, int i) { return to_floats((quads >> (8 * i)) & fill(0xffu)); }
inline Floats signed_byte(Quads quads, int i) { return to_floats(shift_signed(quads << (24 - 8 * i), 24)); }

// Blocks that are packed later, one of each row, if rows lie one after the other. They are asked for a part at a time: the
// processor notes only so many places that it waits for, and then stands still.
class Coming {
  public:
    Coming(const char * first, size_t bytes) : first(first), bytes(bytes) {}

    void ask(int part, int parts) const {
        if (first != nullptr) fetch(first + bytes * part / parts, bytes / parts);
    }

  private:
    const char * first;
    size_t bytes;
};

// A byte with its sign and one scale for 32 values.
struct FormatQ8_0 {
    struct Block {
        uint16_t d;
        int8_t q[WIDTH];
    };
    struct Unit {
        alignas(64) uint8_t q[QUADS][4 * ROWS];
        float d[1][ROWS];
    };
    static constexpr int UNITS = 1;   // of a block
    static constexpr int SCALES = 1;  // of a unit
    static constexpr int OFFSET = SIGNED_WEIGHTS ? 0 : 128;  // what is added to make a value unsigned
    static constexpr int MOST = 128;                         // that a value can be, without its sign
    static constexpr bool HAS_MINIMUM = false;

    static void pack(const Rows & rows, const Coming & coming, Unit * unit) {
        coming.ask(0, 1);
        const Quads flip = fill(every_byte(OFFSET));
        for (int half = 0; half < 2; half++) {
            const Turned turned(rows, offsetof(Block, q) + PART * half);
            for (int i = 0; i < 4; i++) store(unit->q[4 * half + i], turned[i] ^ flip);
        }
        store(unit->d[0], rows.halves(offsetof(Block, d)));
    }
};

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
        alignas(64) uint8_t q[QUADS][4 * ROWS];
        float d[1][ROWS];
        float minimum[ROWS];
    };
    static constexpr int UNITS = SUPER / WIDTH;
    static constexpr int SCALES = 1;
    static constexpr int OFFSET = 0;
    static constexpr int MOST = HAS_FIFTH ? 31 : 15;
    static constexpr bool HAS_MINIMUM = true;

    static void pack(const Rows & rows, const Coming & coming, Unit * units) {
        pack_scales(rows, units);
        coming.ask(0, 2);
        pack_half<0>(rows, units);
        coming.ask(1, 2);
        pack_half<1>(rows, units);
    }

    // Eight scales and minimums: six bits each in twelve bytes, times the block's own two.
    static void pack_scales(const Rows & rows, Unit * units) {
        const Turned head(rows, 0);  // the first four bytes are the block's own two
        const Floats d = rows.halves(offsetof(Block, d)), dmin = rows.halves(offsetof(Block, dmin));
        const Quads scales[2] = {bits(head[1], 0, 63), bits(head[3], 0, 15) | bits(head[1], 6, 3) << 4};
        const Quads minimums[2] = {bits(head[2], 0, 63), bits(head[3], 4, 15) | bits(head[2], 6, 3) << 4};
        for (int u = 0; u < UNITS; u++) {
            store(units[u].d[0], unsigned_byte(scales[u / 4], u % 4) * d);
            store(units[u].minimum, unsigned_byte(minimums[u / 4], u % 4) * dmin);
        }
    }

    // 16 of every 32 values. 32 bytes have two units: their low halves, then the high ones.
    template <int HALF>
    static void pack_half(const Rows & rows, Unit * units) {
        const Turned fifth(rows, sizeof(Four) - sizeof(Four::q) + PART * HALF);  // where there is one
#pragma GCC unroll 4
        for (int two = 0; two < UNITS / 2; two++) {
            const Turned turned(rows, offsetof(Block, q) + 32 * two + PART * HALF);
            for (int i = 0; i < 4; i++) {
                Quads low = bits(turned[i], 0, 15), high = bits(turned[i], 4, 15);
                if constexpr (HAS_FIFTH) {
                    low = low | bits(fifth[i], 2 * two, 1) << 4;
                    high = high | bits(fifth[i], 2 * two + 1, 1) << 4;
                }
                store(units[2 * two].q[4 * HALF + i], low);
                store(units[2 * two + 1].q[4 * HALF + i], high);
            }
        }
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
        alignas(64) uint8_t q[QUADS][4 * ROWS];
        float d[2][ROWS];
    };
    static constexpr int UNITS = SUPER / WIDTH;
    static constexpr int SCALES = 2;
    static constexpr int OFFSET = 32;
    static constexpr int MOST = 63;
    static constexpr bool HAS_MINIMUM = false;

    static void pack(const Rows & rows, const Coming & coming, Unit * units) {
        const Turned scales(rows, offsetof(Block, scales));
        const Floats d = rows.halves(offsetof(Block, d));
        for (int i = 0; i < 2 * UNITS; i++) store(units[i / 2].d[i % 2], signed_byte(scales[i / 4], i % 4) * d);
        for (int four = 0; four < 2; four++) {
            for (int half = 0; half < 2; half++) {
                coming.ask(2 * four + half, 4);
                pack_half(rows, four, half, units + 4 * four);
            }
        }
    }

    // 16 of each 32 of 128 values, in four runs of 32 that share their bytes.
    static void pack_half(const Rows & rows, int four, int half, Unit * units) {
        const Turned first(rows, 64 * four + PART * half), second(rows, 64 * four + 32 + PART * half);
        const Turned two(rows, offsetof(Block, high) + 32 * four + PART * half);
        for (int i = 0; i < 4; i++) {
            const int at = 4 * half + i;
            const Quads high = fill(every_byte(48));
            store(units[0].q[at], bits(first[i], 0, 15) | (two[i] << 4 & high));
            store(units[1].q[at], bits(second[i], 0, 15) | (two[i] << 2 & high));
            store(units[2].q[at], bits(first[i], 4, 15) | (two[i] & high));
            store(units[3].q[at], bits(second[i], 4, 15) | (two[i] >> 2 & high));
        }
    }
};

template <class Format>
void pack(const char * first, size_t row_bytes, int count, int units, const char * ahead, void * panel) {
    constexpr size_t BYTES = ROWS * sizeof(typename Format::Block);
    Rows rows(first, row_bytes, count);
    const auto to = static_cast<typename Format::Unit *>(panel);
    for (int u = 0; u < units; u += Format::UNITS) {
        Format::pack(rows, Coming(ahead, BYTES), to + u);
        if (ahead != nullptr) ahead += BYTES;
        rows.skip(sizeof(typename Format::Block));
    }
}

}  // namespace
