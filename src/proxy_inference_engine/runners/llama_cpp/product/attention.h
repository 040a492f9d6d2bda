// Attention over the keys and values of one head: 16 rows of queries at a time, one to a lane, so that nothing is ever
// summed across a register. Keys and values are made floats 64 at a time and used for all rows. A few rows are computed
// otherwise (attention_few.h). Included by each variant after its lanes.

#pragma once

#include <cstring>

#include "fetch.h"
#include "variant.h"

namespace {

using product::Attention;
using product::KEYS;
using product::LANES;

constexpr float LEAST = -1e30f;      // of a score: what the mask shuts out
constexpr float BEFORE = -1e20f;     // the largest score before there was any
constexpr uint16_t SHUT = 0xfc00;    // a half that is minus infinity

// As the standard library's, of which no function may come into the compiled file of a variant.
template <class Number>
inline Number least(Number a, Number b) {
    return b < a ? b : a;
}

// For what is not above zero.
inline __attribute__((always_inline)) Floats exponential(Floats x) {
    const Floats bounded = larger(x, fill(-87.0f));
    const Quads whole = rounded(bounded * fill(1.44269504f));
    Floats rest = take_product(bounded, to_floats(whole), fill(0.693359375f));
    rest = take_product(rest, to_floats(whole), fill(-2.12194440e-4f));
    Floats sum = fill(1.9875691500e-4f);
    constexpr float NEXT[] = {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f, 1.0f, 1.0f};
    for (const float next : NEXT) sum = add_product(fill(next), sum, rest);
    return sum * as_floats((whole + fill(127u)) << 23);
}

// Rows of 16 values; `from` and `to` are as far apart as they say.
inline void widen(const char * from, size_t next, int count, int width, float * to) {
    for (int i = 0; i < count; i++, from += next, to += width) {
        for (int at = 0; at < width; at += LANES) {
            store(to + at, to_floats(*reinterpret_cast<const uint16_t(*)[LANES]>(from + sizeof(uint16_t) * at)));
        }
    }
}

// scores[key][row], from queries[value][row] and keys[key][value].
template <int BREADTH>
inline void score(const float * queries, const float * keys, int width, float * scores) {
    for (int first = 0; first < KEYS; first += BREADTH, keys += BREADTH * width) {
        Floats sums[BREADTH];
#pragma GCC unroll 16
        for (auto & sum : sums) sum = fill(0.0f);
        for (int at = 0; at < width; at++) {
            const Floats query = load(queries + LANES * at);
#pragma GCC unroll 16
            for (int i = 0; i < BREADTH; i++) sums[i] = add_product(sums[i], query, fill(keys[width * i + at]));
        }
#pragma GCC unroll 16
        for (int i = 0; i < BREADTH; i++) store(scores + LANES * (first + i), sums[i]);
    }
}

// sums[value][row] times `scale`, and weights[key][row] times values[key][value] added.
template <int BREADTH>
inline void mix(const float * weights, const float * values, int width, Floats scale, float * to) {
    for (int first = 0; first < width; first += BREADTH) {
        Floats sums[BREADTH];
#pragma GCC unroll 16
        for (int i = 0; i < BREADTH; i++) sums[i] = load(to + LANES * (first + i)) * scale;
        for (int key = 0; key < KEYS; key++) {
            const Floats weight = load(weights + LANES * key);
#pragma GCC unroll 16
            for (int i = 0; i < BREADTH; i++) {
                sums[i] = add_product(sums[i], weight, fill(values[width * key + first + i]));
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < BREADTH; i++) store(to + LANES * (first + i), sums[i]);
    }
}

enum class Sight { none, some, all };  // of 64 keys by a token

inline Sight sight_of(const uint16_t * mask, int count) {
    int num_open = 0, num_shut = 0;
    for (int i = 0; i < count; i++) {
        num_open += mask[i] == 0;
        num_shut += mask[i] == SHUT;
    }
    if (num_shut == count) return Sight::none;
    return num_open == KEYS ? Sight::all : Sight::some;
}

// What a thread works in: `room` as floats, in this order.
struct Desk {
    float *keys, *values, *scores, *mask, *queries, *sums;

    Desk(const Attention & work)
        : keys(work.room),
          values(keys + KEYS * work.width),
          scores(values + KEYS * work.width),
          mask(scores + KEYS * LANES),
          queries(mask + KEYS * LANES),
          sums(queries + product::MAX_ROWS * work.width) {}
};

struct Block {  // 16 rows
    float top[LANES], total[LANES];
};

inline const uint16_t * mask_of(const Attention & work, int token, int64_t key) {
    return reinterpret_cast<const uint16_t *>(work.mask + work.mask_token * (work.first_row / work.group + token)) + key;
}

inline void turn_queries(const Attention & work, const Desk & desk) {
    std::memset(desk.queries, 0, sizeof(float) * product::MAX_ROWS * work.width);
    std::memset(desk.sums, 0, sizeof(float) * product::MAX_ROWS * work.width);
    for (int row = 0; row < work.rows; row++) {
        const int64_t token = (work.first_row + row) / work.group, head = (work.first_row + row) % work.group;
        auto from = reinterpret_cast<const float *>(work.queries + work.query_token * token + work.query_head * head);
        float * to = desk.queries + LANES * work.width * (row / LANES) + row % LANES;
        for (int at = 0; at < work.width; at++) to[LANES * at] = from[at] * work.scale;
    }
}

// mask[key][row] of a block; keys beyond the last are shut.
inline void turn_mask(const Attention & work, int block, int64_t key, int count, float * to) {
    for (int lane = 0; lane < LANES; lane++) {
        const int row = least(block * LANES + lane, work.rows - 1);
        const int64_t token = (work.first_row + row) / work.group - work.first_row / work.group;
        const uint16_t * mask = work.mask == nullptr ? nullptr : mask_of(work, static_cast<int>(token), key);
        for (int i = 0; i < KEYS; i++) {
            to[LANES * i + lane] = i >= count ? LEAST : mask == nullptr ? 0.0f : -least(-to_float(mask[i]), -LEAST);
        }
    }
}

template <int BREADTH>
inline void add_keys(const Attention & work, const Desk & desk, int block, const float * mask, Block & state) {
    score<BREADTH>(desk.queries + LANES * work.width * block, desk.keys, work.width, desk.scores);
    const Floats before = load(state.top);
    Floats top = before;
    for (int i = 0; i < KEYS; i++) {
        Floats one = load(desk.scores + LANES * i);
        if (mask != nullptr) {
            one = add_product(load(mask + LANES * i), one, fill(1.0f));
            store(desk.scores + LANES * i, one);
        }
        top = larger(top, one);
    }
    const Floats scale = exponential(take_product(before, top, fill(1.0f)));
    Floats total = load(state.total) * scale;
    for (int i = 0; i < KEYS; i++) {
        const Floats weight = exponential(take_product(load(desk.scores + LANES * i), top, fill(1.0f)));
        store(desk.scores + LANES * i, weight);
        total = add_product(total, weight, fill(1.0f));
    }
    store(state.top, top);
    store(state.total, total);
    mix<BREADTH>(desk.scores, desk.values, work.width, scale, desk.sums + LANES * work.width * block);
}

inline void write_rows(const Attention & work, const Desk & desk, const Block * blocks) {
    for (int row = 0; row < work.rows; row++) {
        const int64_t token = (work.first_row + row) / work.group, head = (work.first_row + row) % work.group;
        auto to = reinterpret_cast<float *>(work.to + work.to_token * token + work.to_head * head);
        const float * from = desk.sums + LANES * work.width * (row / LANES) + row % LANES;
        const float inverse = 1.0f / blocks[row / LANES].total[row % LANES];
        for (int at = 0; at < work.width; at++) to[at] = from[LANES * at] * inverse;
    }
}

// 64 keys for all rows that see some of them.
template <int BREADTH>
inline void add_tile(const Attention & work, const Desk & desk, int64_t key, Block * blocks) {
    const int count = static_cast<int>(least<int64_t>(KEYS, work.num_keys - key));
    const int64_t first = work.first_row / work.group;
    const int num_tokens = static_cast<int>((work.first_row + work.rows - 1) / work.group - first) + 1;
    Sight sights[product::MAX_ROWS];
    bool is_seen = false;
    for (int token = 0; token < num_tokens; token++) {
        sights[token] = work.mask != nullptr ? sight_of(mask_of(work, token, key), count)
                                             : (count == KEYS ? Sight::all : Sight::some);
        is_seen = is_seen || sights[token] != Sight::none;
    }
    if (!is_seen) return;
    widen(work.keys + work.key_next * key, work.key_next, count, work.width, desk.keys);
    widen(work.values + work.value_next * key, work.value_next, count, work.width, desk.values);
    const size_t missing = sizeof(float) * (KEYS - count) * work.width;
    std::memset(desk.keys + count * work.width, 0, missing);
    std::memset(desk.values + count * work.width, 0, missing);
    for (int block = 0; block * LANES < work.rows; block++) {
        const int64_t last_row = least(work.rows, (block + 1) * LANES) - 1;
        auto token = static_cast<int>((work.first_row + block * LANES) / work.group - first);
        const auto last = static_cast<int>((work.first_row + last_row) / work.group - first);
        bool sees_all = true, sees_none = true;
        for (; token <= last; token++) {
            sees_all = sees_all && sights[token] == Sight::all;
            sees_none = sees_none && sights[token] == Sight::none;
        }
        if (sees_none) continue;
        if (!sees_all) turn_mask(work, block, key, count, desk.mask);
        add_keys<BREADTH>(work, desk, block, sees_all ? nullptr : desk.mask, blocks[block]);
    }
}

}  // namespace

#include "attention_few.h"

namespace {

constexpr int MOST_FEW = 8;  // rows for which empty lanes would cost more than keys that are read again

template <int BREADTH>
void attend(const Attention & work) {
    if (work.rows <= MOST_FEW) {
        constexpr int WIDE = BREADTH > 4 ? 2 : 1;  // where there are registers for them
        for (int first = 0; first < work.rows; first += FEW) {
            const int count = least(FEW, work.rows - first);
            if (work.width % (LANES * WIDE) == 0) attend_some<WIDE>(work, first, count);
            else attend_some<1>(work, first, count);
        }
        return;
    }
    const Desk desk(work);
    Block blocks[product::MAX_ROWS / LANES];
    for (auto & block : blocks) {
        store(block.top, fill(BEFORE));
        store(block.total, fill(0.0f));
    }
    turn_queries(work, desk);
    for (int64_t key = 0; key < work.num_keys; key += KEYS) add_tile<BREADTH>(work, desk, key, blocks);
    write_rows(work, desk, blocks);
}

}  // namespace
