// ARM with dotprod: one instruction multiplies 16 bytes with signs and adds them to four sums.

#include "neon.h"

namespace {

constexpr bool SIGNED_WEIGHTS = true;
constexpr int PANELS = 1;
constexpr int GROUP = 1;  // four chains by itself
constexpr int BREADTH = 4;
constexpr int ATTENDED = 4;
constexpr int PEAK_CHAINS = 6;

template <int MOST>
struct Chain {
    Quads sum;

    explicit Chain(int32_t start = 0) : sum(fill(static_cast<uint32_t>(start))) {}

    static int8x16_t read(const int8_t * column) {
        int32_t four;
        std::memcpy(&four, column, sizeof(four));
        return vreinterpretq_s8_s32(vdupq_n_s32(four));
    }

    void add(Quads weights, int8x16_t given) {
        for (int i = 0; i < 4; i++) {
            const int8x16_t part = vreinterpretq_s8_u32(weights.part[i]);
            sum.part[i] = vreinterpretq_u32_s32(vdotq_s32(vreinterpretq_s32_u32(sum.part[i]), part, given));
        }
    }

    Quads total() const { return sum; }
};

}  // namespace

#include "chains.h"

constexpr product::Variant product::neon = make_variant<Chains>("NEON dotprod");
