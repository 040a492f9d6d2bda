// What a variant of the product is: the same steps in the instructions of one kind of processor. Each is compiled for
// itself, with options of its own, and must keep everything that it defines to itself but its `Variant`: a function
// that two of them share would be linked once, and might be the one that this processor cannot run.

#pragma once

#include <cstddef>
#include <cstdint>

namespace product {

constexpr int ROWS = 16;     // of a panel
constexpr int WIDTH = 32;    // values of a row in a unit of a panel
constexpr int COLUMNS = 16;  // of a strip
constexpr int TOGETHER = 2;  // panels that are given to a variant at once
constexpr size_t MAX_UNIT_BYTES = 640;

// 32 values of each column of a strip as bytes with their scale, and what makes up for weights that were made unsigned.
struct Piece {
    alignas(64) int8_t q[COLUMNS][WIDTH];
    float d[COLUMNS];
    int32_t offset[2][COLUMNS];  // -OFFSET times the sum of the values that share a scale
    float sum[COLUMNS];          // d times the sum, for a minimum
};

using Sums = float[COLUMNS][ROWS];

// Packed, with so many bytes from one to the next. `ahead` is where weights lie that will probably be read soon: the
// memory is asked for them bit by bit while these panels are computed.
struct Panels {
    const char * first;
    size_t next;
    int count;
    const char * ahead = nullptr;
    size_t ahead_bytes = 0;
};

// For one format of weights.
struct Kernel {
    int block_values;
    size_t block_bytes, unit_bytes;
    int least_columns;  // that are computed sooner than ggml computes them
    // One column's part of a piece: 32 values.
    void (*round)(const float * values, Piece & piece, int column);
    // So many units of the rows, the first of which begins at `first`; those beyond `rows` are as the last one. As
    // many bytes are asked for at `ahead`, unless that is null.
    void (*pack)(const char * first, size_t row_bytes, int rows, int units, const char * ahead, void * panel);
    // Adds units of each panel times pieces, to its own sums.
    void (*compute)(const Panels & panels, const Piece * strip, int units, int columns, Sums * sums);
    // All units of up to 16 rows, as they lie, times one column: where there is something better than a panel for that.
    // `next` is where those begin that will probably be read after them.
    void (*multiply_column)(const char * first, size_t row_bytes, int rows, const Piece * strip, int units,
                            const char * next, float * to);
};

constexpr int LANES = 16;
constexpr int KEYS = 64;      // that are looked at together
constexpr int MAX_WIDTH = 256;  // of a head
constexpr int MAX_ROWS = 64;  // of queries for which keys are made floats once

// Attention of some rows of queries over the keys and values of one head. A row is one of the `group` heads that share
// these, of one token. Queries and results are floats, the others halves.
struct Attention {
    const char *queries, *keys, *values, *mask;  // no mask: all is seen
    char * to;
    size_t query_token, query_head, key_next, value_next, mask_token, to_token, to_head;  // bytes from one to the next
    int64_t first_row, num_keys;
    int rows, group, width;
    float scale;
    float * room;

    static size_t room_bytes(int64_t width) {
        return sizeof(float) * (2 * KEYS * width + 2 * KEYS * LANES + 2 * MAX_ROWS * width);
    }
};

struct Variant {
    const char * name;
    Kernel q8_0, q4_k, q5_k, q6_k;
    void (*attend)(const Attention & work);
    // So many multiplications as often as it is told, and nothing else: for benchmarks.
    int peak_multiplications;
    int32_t (*peak)(int64_t times);
    // What a thread sets before products and sets back after them, where there is something. `kept` has 64 bytes.
    void (*begin)(void * kept);
    void (*end)(const void * kept);
};

// Those of all processors; some are not compiled here.
extern const Variant amx, avx512, avx_vnni, avx2, neon;

}  // namespace product
