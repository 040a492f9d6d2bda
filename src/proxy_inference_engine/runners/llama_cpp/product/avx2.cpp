// AVX2 alone: pairs of products become numbers of 16 bits, which must not be larger than those hold.

#include "avx2.h"

namespace {

constexpr bool SIGNED_WEIGHTS = true;
constexpr int PANELS = 1;
constexpr int GROUP = 1;
constexpr int BREADTH = 4;
constexpr int ATTENDED = 4;
constexpr int PEAK_CHAINS = 4;
constexpr int MOST_OF_A_COLUMN = 127;

// MOST is the largest that a weight can be, without its sign.
template <int MOST>
struct Chain {
    static constexpr int ROOM = INT16_MAX / (2 * MOST * MOST_OF_A_COLUMN);  // pairs in a sum of 16 bits
    static_assert(ROOM >= 1);
    static constexpr bool HAS_SIGN = MOST > INT8_MAX;

    Quads sum, part{};
    int num_pairs = 0;

    explicit Chain(int32_t start = 0) : sum(fill(static_cast<uint32_t>(start))) {}

    static __m256i read(const int8_t * column) { return broadcast(column); }

    void add(Quads weights, __m256i four) {
        const __m256i low = multiply(weights.low, four), high = multiply(weights.high, four);
        part = num_pairs == 0 ? Quads{low, high}
                              : Quads{_mm256_add_epi16(part.low, low), _mm256_add_epi16(part.high, high)};
        if (++num_pairs == ROOM) flush();
    }

    Quads total() {
        if (num_pairs != 0) flush();
        return sum;
    }

  private:
    // The instruction takes one side without a sign: a weight's sign goes over to the column.
    static __m256i multiply(__m256i weights, __m256i four) {
        if constexpr (!HAS_SIGN) return _mm256_maddubs_epi16(weights, four);
        return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(four, weights));
    }

    void flush() {
        const __m256i ones = _mm256_set1_epi16(1);
        sum.low = _mm256_add_epi32(sum.low, _mm256_madd_epi16(part.low, ones));
        sum.high = _mm256_add_epi32(sum.high, _mm256_madd_epi16(part.high, ones));
        num_pairs = 0;
    }
};

}  // namespace

#include "chains.h"

namespace {

// The instruction takes one side without a sign: a weight's goes over to the column.
struct RowProduct {
    __m256i column;

    explicit RowProduct(__m256i column) : column(column) {}

    INLINED __m256i of(__m256i row) const {
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(row), _mm256_sign_epi8(column, row));
        return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    }
};

}  // namespace

#include "rows256.h"

constexpr product::Variant product::avx2 = with_column(make_variant<Chains>("AVX2"));
