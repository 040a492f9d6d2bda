// AVX-512 with VNNI: one instruction multiplies 64 unsigned bytes with signed ones and adds them to 16 sums.

#include "avx512.h"

namespace {

constexpr bool SIGNED_WEIGHTS = false;
constexpr int GROUP = 2;  // more than one: its chains wait for each other; four take too many registers
constexpr int BREADTH = 16;
constexpr int PEAK_CHAINS = 16;

template <int MOST>
struct Chain {
    __m512i sum;

    explicit Chain(int32_t start = 0) : sum(_mm512_set1_epi32(start)) {}

    void add(Quads weights, const int8_t * column) {
        int32_t four;
        std::memcpy(&four, column, sizeof(four));
        sum = _mm512_dpbusd_epi32(sum, weights.all, _mm512_set1_epi32(four));
    }

    Quads total() const { return {sum}; }
};

}  // namespace

#include "tile.h"

constexpr product::Variant product::avx512 = make_variant("AVX-512 VNNI");
