// AVX-512 with VNNI.

#include "vnni512.h"

namespace {

constexpr bool SIGNED_WEIGHTS = false;

}  // namespace

#include "rows512.h"

constexpr product::Variant product::avx512 = with_column(make_variant<Chains>("AVX-512 VNNI"));
