// AVX-512 with VNNI.

#include "vnni512.h"

namespace {

constexpr bool SIGNED_WEIGHTS = false;

}  // namespace

#include "rows512.h"

namespace {

// Here panels are taken apart sooner than ggml multiplies one column, if it was compiled for AVX2, as prebuilt ones are.
constexpr product::Variant with_all_columns(product::Variant variant) {
    for (auto kernel : {&product::Variant::q4_k, &product::Variant::q5_k, &product::Variant::q6_k}) {
        (variant.*kernel).least_columns = 1;
    }
    return variant;
}

}  // namespace

constexpr product::Variant product::avx512 = with_all_columns(with_column(make_variant<Chains>("AVX-512 VNNI")));
