// Attention of a few rows, as of one token and the heads that share its keys. Values of a row lie in the lanes here, so
// that none is empty, and keys and values are read as they lie. Included by `attention.h`.

#pragma once

namespace {

constexpr int FEW = 4;  // rows that are computed at once

struct FewRows {
    float queries[FEW][product::MAX_WIDTH], sums[FEW][product::MAX_WIDTH], scores[FEW][KEYS], top[FEW], total[FEW];
};

inline Floats widened(const char * halves, int at) {
    return to_floats(*reinterpret_cast<const uint16_t(*)[LANES]>(halves + sizeof(uint16_t) * at));
}

template <int ROWS>
inline void score_few(const Attention & work, const char * keys, int count, FewRows & rows) {
    for (int i = 0; i < count; i++, keys += work.key_next) {
        fetch(keys + work.key_next * SOON, sizeof(uint16_t) * work.width);
        Floats sums[ROWS];
#pragma GCC unroll 4
        for (auto & sum : sums) sum = fill(0.0f);
        for (int at = 0; at < work.width; at += LANES) {
            const Floats key = widened(keys, at);
#pragma GCC unroll 4
            for (int row = 0; row < ROWS; row++) sums[row] = add_product(sums[row], key, load(rows.queries[row] + at));
        }
#pragma GCC unroll 4
        for (int row = 0; row < ROWS; row++) rows.scores[row][i] = total(sums[row]);
    }
}

// sums[row] times scale[row], and scores[row] times values added, so many times 16 of them at once.
template <int ROWS, int PARTS>
inline void mix_few(const Attention & work, const char * values, int count, const float * scale, FewRows & rows) {
    for (int at = 0; at < work.width; at += LANES * PARTS) {
        Floats sums[ROWS][PARTS];
        for (int row = 0; row < ROWS; row++) {
            for (int p = 0; p < PARTS; p++) sums[row][p] = load(rows.sums[row] + at + LANES * p) * fill(scale[row]);
        }
        const char * from = values;
        for (int i = 0; i < count; i++, from += work.value_next) {
#pragma GCC unroll 4
            for (int p = 0; p < PARTS; p++) {
                const Floats value = widened(from, at + LANES * p);
#pragma GCC unroll 4
                for (int row = 0; row < ROWS; row++) {
                    sums[row][p] = add_product(sums[row][p], value, fill(rows.scores[row][i]));
                }
            }
        }
        for (int row = 0; row < ROWS; row++) {
            for (int p = 0; p < PARTS; p++) store(rows.sums[row] + at + LANES * p, sums[row][p]);
        }
    }
}

inline void add_mask(const uint16_t * mask, int count, float * scores) {
    for (int i = 0; i < count; i++) scores[i] += -least(-to_float(mask[i]), -LEAST);
}

// Scores become weights. How much less is worth what was summed up before.
inline float weigh(int count, float * scores, float & top, float & sum) {
    for (int i = count; i < KEYS; i++) scores[i] = LEAST;
    Floats lanes = fill(top);
    for (int i = 0; i < KEYS; i += LANES) lanes = larger(lanes, load(scores + i));
    alignas(64) float most[LANES];
    store(most, lanes);
    const float before = top;
    for (const float one : most) top = one > top ? one : top;
    Floats weights = fill(0.0f);
    for (int i = 0; i < KEYS; i += LANES) {
        const Floats weight = exponential(take_product(load(scores + i), fill(top), fill(1.0f)));
        store(scores + i, weight);
        weights = add_product(weights, weight, fill(1.0f));
    }
    store(most, exponential(fill(before - top)));
    sum = sum * most[0] + total(weights);
    return most[0];
}

template <int ROWS, int PARTS>
void attend_few(const Attention & work, int first) {
    alignas(64) FewRows rows;
    const auto token = [&](int row) { return (work.first_row + first + row) / work.group; };
    const auto head = [&](int row) { return (work.first_row + first + row) % work.group; };
    for (int row = 0; row < ROWS; row++) {
        const char * from = work.queries + work.query_token * token(row) + work.query_head * head(row);
        for (int at = 0; at < work.width; at += LANES) {
            store(rows.queries[row] + at, load(reinterpret_cast<const float *>(from) + at) * fill(work.scale));
            store(rows.sums[row] + at, fill(0.0f));
        }
        rows.top[row] = BEFORE;
        rows.total[row] = 0.0f;
    }
    for (int64_t key = 0; key < work.num_keys; key += KEYS) {
        const int count = static_cast<int>(least<int64_t>(KEYS, work.num_keys - key));
        const auto mask = [&](int row) {
            return reinterpret_cast<const uint16_t *>(work.mask + work.mask_token * token(row)) + key;
        };
        Sight sights[ROWS];
        bool is_seen = false;
        for (int row = 0; row < ROWS; row++) {
            sights[row] = work.mask == nullptr ? Sight::all : sight_of(mask(row), count);
            is_seen = is_seen || sights[row] != Sight::none;
        }
        if (!is_seen) continue;
        fetch_rows(work.values + work.value_next * key, work.value_next, count, work.width);
        score_few<ROWS>(work, work.keys + work.key_next * key, count, rows);
        float scale[ROWS];
        for (int row = 0; row < ROWS; row++) {
            if (sights[row] != Sight::all && work.mask != nullptr) add_mask(mask(row), count, rows.scores[row]);
            scale[row] = weigh(count, rows.scores[row], rows.top[row], rows.total[row]);
        }
        mix_few<ROWS, PARTS>(work, work.values + work.value_next * key, count, scale, rows);
    }
    for (int row = 0; row < ROWS; row++) {
        char * to = work.to + work.to_token * token(row) + work.to_head * head(row);
        const Floats inverse = fill(1.0f / rows.total[row]);
        for (int at = 0; at < work.width; at += LANES) {
            store(reinterpret_cast<float *>(to) + at, load(rows.sums[row] + at) * inverse);
        }
    }
}

template <int PARTS>
void attend_some(const Attention & work, int first, int count) {
    if (count >= 4) return attend_few<4, PARTS>(work, first);
    if (count == 3) return attend_few<3, PARTS>(work, first);
    if (count == 2) return attend_few<2, PARTS>(work, first);
    attend_few<1, PARTS>(work, first);
}

}  // namespace
