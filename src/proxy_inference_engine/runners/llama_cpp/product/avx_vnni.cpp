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

namespace {

// The instruction takes one side without a sign: 128 is added to each weight, and what that adds is taken away first.
struct RowProduct {
    __m256i column, begin;

    explicit RowProduct(__m256i column)
        : column(column),
          begin(_mm256_sub_epi32(_mm256_setzero_si256(),
                                 _mm256_dpbusd_epi32(_mm256_setzero_si256(), flip(), column))) {}

    INLINED __m256i of(__m256i row) const {
        return _mm256_dpbusd_epi32(begin, _mm256_xor_si256(row, flip()), column);
    }

    static __m256i flip() { return _mm256_set1_epi8(static_cast<char>(0x80)); }
};

}  // namespace

#include "rows256.h"

constexpr product::Variant product::avx_vnni = with_column(make_variant<Chains>("AVX-VNNI"));
