// AMX beside AVX-512: one instruction multiplies 32 bytes of each of 16 columns with those of 16 rows, in registers that
// are tiles. A piece of a strip and a unit of a panel lie as it wants them. What comes out is scaled by AVX-512.

#include "vnni512.h"

namespace {

constexpr bool SIGNED_WEIGHTS = true;

}  // namespace

#include "rows512.h"

namespace {

// The registers. Few columns have tiles of few rows, which are sooner loaded and stored.
enum Tile { SUMS_16 = 0, SUMS_8, SUMS_4, COLUMNS_16, COLUMNS_8, COLUMNS_4, WEIGHTS };

constexpr int SHAPE_BYTES = 64;

struct alignas(SHAPE_BYTES) Shapes {
    uint8_t palette = 1, first = 0, unused[14] = {};
    uint16_t bytes[16] = {};  // of a row
    uint8_t rows[16] = {};

    constexpr Shapes() {
        for (int i = 0; i < 3; i++) {
            set(SUMS_16 + i, COLUMNS >> i, sizeof(int32_t) * ROWS);
            set(COLUMNS_16 + i, COLUMNS >> i, WIDTH);
        }
        set(WEIGHTS, QUADS, 4 * ROWS);
    }

    constexpr void set(int tile, int num_rows, int num_bytes) {
        rows[tile] = static_cast<uint8_t>(num_rows);
        bytes[tile] = static_cast<uint16_t>(num_bytes);
    }
};
static_assert(sizeof(Shapes) == SHAPE_BYTES);

constexpr Shapes shapes;

// ggml may use tiles on this thread too, whose shapes it sets but once.
void begin(void * kept) {
    asm volatile("sttilecfg %0" : "=m"(*static_cast<char(*)[SHAPE_BYTES]>(kept)));
    asm volatile("ldtilecfg %0" ::"m"(shapes));
}

void end(const void * kept) { asm volatile("ldtilecfg %0" ::"m"(*static_cast<const char(*)[SHAPE_BYTES]>(kept))); }

// GCC's own functions for tiles take the number of a register as text.
template <int TILE>
INLINED void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(TILE));
}
template <int TILE>
INLINED void load_tile(const void * from, int64_t next) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(TILE), "r"(from), "r"(next) : "memory");
}
template <int TILE>
INLINED void store_tile(void * to, int64_t next) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(TILE), "r"(to), "r"(next) : "memory");
}
template <int TO, int COLUMNS_TILE>
INLINED void multiply_tiles() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(TO), "i"(COLUMNS_TILE), "i"(WEIGHTS));
}

constexpr int AHEAD = 4;  // units: it takes long until a stored tile can be read

struct alignas(64) Products {
    int32_t of[COLUMNS][ROWS];
};

template <class Format, int COUNT>
INLINED void multiply_unit(const typename Format::Unit & unit, const Piece & piece, Products & to) {
    constexpr int WHICH = COUNT == 16 ? 0 : COUNT == 8 ? 1 : 2;
    clear<SUMS_16 + WHICH>();
    load_tile<COLUMNS_16 + WHICH>(piece.q, sizeof(piece.q[0]));
    load_tile<WEIGHTS>(unit.q, sizeof(unit.q[0]));
    multiply_tiles<SUMS_16 + WHICH, COLUMNS_16 + WHICH>();
    store_tile<SUMS_16 + WHICH>(to.of, sizeof(to.of[0]));
}

template <class Format, int COUNT>
INLINED void add_scaled(const typename Format::Unit & unit, const Piece & piece, const Products & products,
                        Floats (&sums)[COUNT]) {
    const Floats scale = load(unit.d[0]);
#pragma GCC unroll 16
    for (int c = 0; c < COUNT; c++) {
        sums[c] = add_product(sums[c], to_floats(load(products.of[c])) * scale, fill(piece.d[c]));
        if constexpr (Format::HAS_MINIMUM) sums[c] = take_product(sums[c], load(unit.minimum), fill(piece.sum[c]));
    }
}

// Some of these columns may be none: they cost nothing and are written nowhere.
template <class Format, int COUNT>
void add_tiles(const void * panel, const Piece * strip, int units, product::Sums & to) {
    const auto unit = static_cast<const typename Format::Unit *>(panel);
    Products products[AHEAD];
    Floats sums[1][COUNT];
    EACH(1, COUNT) sums[p][c] = load(to[c]);
    for (int u = 0; u < AHEAD && u < units; u++) multiply_unit<Format, COUNT>(unit[u], strip[u], products[u]);
    for (int u = 0; u < units; u++) {
        add_scaled<Format, COUNT>(unit[u], strip[u], products[u % AHEAD], sums[0]);
        const int next = u + AHEAD;
        if (next < units) multiply_unit<Format, COUNT>(unit[next], strip[next], products[u % AHEAD]);
    }
    EACH(1, COUNT) store(to[c], sums[p][c]);
}

struct Tiles {
    static constexpr int PEAK_MULTIPLICATIONS = COLUMNS * ROWS * WIDTH;

    // Where 16 values share a scale there would be twice as much to scale: chains are faster.
    template <class Format>
    static void compute(const Panels & panels, const Piece * strip, int units, int columns, product::Sums * sums) {
        if constexpr (Format::SCALES == 2) {
            Chains::compute<Format>(panels, strip, units, columns, sums);
        } else {
            const auto add = columns <= 4 ? add_tiles<Format, 4>
                             : columns <= 8 ? add_tiles<Format, 8> : add_tiles<Format, 16>;
            fetch(panels.ahead, panels.ahead_bytes);
            for (int p = 0; p < panels.count; p++) add(start(panels, p), strip, units, sums[p]);
        }
    }

    static int32_t peak(int64_t times) {
        alignas(SHAPE_BYTES) char kept[SHAPE_BYTES];
        begin(kept);
        for (int64_t t = 0; t < times; t++) multiply_tiles<SUMS_16, COLUMNS_16>();
        end(kept);
        return 0;
    }
};

constexpr product::Variant make_amx() {
    product::Variant made = with_column(make_variant<Tiles>("AMX"));
    made.begin = begin;
    made.end = end;
    return made;
}

}  // namespace

constexpr product::Variant product::amx = make_amx();
