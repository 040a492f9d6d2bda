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
constexpr size_t MAX_UNIT_BYTES = 640;

// 32 values of each column of a strip as bytes with their scale, and what makes up for weights that were made unsigned.
struct Piece {
    alignas(64) int8_t q[COLUMNS][WIDTH];
    float d[COLUMNS];
    int32_t offset[2][COLUMNS];  // -OFFSET times the sum of the values that share a scale
    float sum[COLUMNS];          // d times the sum, for a minimum
};

using Sums = float[COLUMNS][ROWS];

// For one format of weights.
struct Kernel {
    int block_values;
    size_t block_bytes, unit_bytes;
    // One column's part of a piece: 32 values.
    void (*round)(const float * values, Piece & piece, int column);
    // So many units of the rows, the first of which begins at `first`; those beyond `rows` are as the last one.
    void (*pack)(const char * first, size_t row_bytes, int rows, int units, void * panel);
    // Adds units times pieces.
    void (*compute)(const void * panel, const Piece * strip, int units, int columns, Sums & sums);
};

struct Variant {
    const char * name;
    Kernel q8_0, q4_k, q5_k, q6_k;
    // So many multiplications as often as it is told, and nothing else: for benchmarks.
    int peak_multiplications;
    int32_t (*peak)(int64_t times);
};

// Those of all processors; some are not compiled here.
extern const Variant avx512, avx_vnni, avx2, neon;

}  // namespace product
