// AVX2 with VNNI: one instruction multiplies 32 unsigned bytes with signed ones and adds them to eight sums.

#include "avx2.h"

namespace {

constexpr bool SIGNED_WEIGHTS = false;
constexpr int PANELS = 1;
constexpr int GROUP = 2;
constexpr int BREADTH = 4;
constexpr int ATTENDED = 4;
constexpr int PEAK_CHAINS = 6;

template <int MOST>
struct Chain {
    Quads sum;

    explicit Chain(int32_t start = 0) : sum(fill(static_cast<uint32_t>(start))) {}

    static __m256i read(const int8_t * column) { return broadcast(column); }

    void add(Quads weights, __m256i four) {
        sum.low = _mm256_dpbusd_epi32(sum.low, weights.low, four);
        sum.high = _mm256_dpbusd_epi32(sum.high, weights.high, four);
    }

    Quads total() const { return sum; }
};

}  // namespace

#include "chains.h"

constexpr product::Variant product::avx_vnni = make_variant<Chains>("AVX-VNNI");
