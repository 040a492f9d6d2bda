// 16 lanes in two registers each: AVX2 with FMA and F16C.

#pragma once

#include <immintrin.h>

#include <cstring>

#include "variant.h"

namespace {

struct Quads {  // four bytes, or one whole number, of each of 16 rows
    __m256i low, high;
};
struct Floats {
    __m256 low, high;
};

inline void hide(Quads & quads) { asm volatile("" : "+x"(quads.low), "+x"(quads.high)); }
inline Quads fill(uint32_t value) {
    const __m256i all = _mm256_set1_epi32(static_cast<int>(value));
    return {all, all};
}
inline Quads load(const void * from) {
    const auto at = static_cast<const __m256i *>(from);
    return {_mm256_load_si256(at), _mm256_load_si256(at + 1)};
}
inline void store(void * to, Quads quads) {
    const auto at = static_cast<__m256i *>(to);
    _mm256_store_si256(at, quads.low);
    _mm256_store_si256(at + 1, quads.high);
}
inline Quads operator&(Quads a, Quads b) { return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)}; }
inline Quads operator|(Quads a, Quads b) { return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)}; }
inline Quads operator^(Quads a, Quads b) { return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)}; }
inline Quads operator<<(Quads a, int by) { return {_mm256_slli_epi32(a.low, by), _mm256_slli_epi32(a.high, by)}; }
inline Quads operator>>(Quads a, int by) { return {_mm256_srli_epi32(a.low, by), _mm256_srli_epi32(a.high, by)}; }
inline Quads shift_signed(Quads a, int by) { return {_mm256_srai_epi32(a.low, by), _mm256_srai_epi32(a.high, by)}; }

// 16 bytes of the rows i, 4 + i, 8 + i and 12 + i; the next four turn such registers.
inline Quads gather(const char * const (&rows)[product::ROWS], int i, size_t offset) {
    const auto row = [&](int which) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i *>(rows[which] + offset));
    };
    return {_mm256_inserti128_si256(_mm256_castsi128_si256(row(i)), row(4 + i), 1),
            _mm256_inserti128_si256(_mm256_castsi128_si256(row(8 + i)), row(12 + i), 1)};
}
inline Quads low_words(Quads a, Quads b) {
    return {_mm256_unpacklo_epi32(a.low, b.low), _mm256_unpacklo_epi32(a.high, b.high)};
}
inline Quads high_words(Quads a, Quads b) {
    return {_mm256_unpackhi_epi32(a.low, b.low), _mm256_unpackhi_epi32(a.high, b.high)};
}
inline Quads low_pairs(Quads a, Quads b) {
    return {_mm256_unpacklo_epi64(a.low, b.low), _mm256_unpacklo_epi64(a.high, b.high)};
}
inline Quads high_pairs(Quads a, Quads b) {
    return {_mm256_unpackhi_epi64(a.low, b.low), _mm256_unpackhi_epi64(a.high, b.high)};
}

inline Quads operator+(Quads a, Quads b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

inline Floats fill(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Floats load(const float * from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float * to, Floats floats) {
    _mm256_storeu_ps(to, floats.low);
    _mm256_storeu_ps(to + 8, floats.high);
}
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats add_product(Floats sum, Floats a, Floats b) {
    return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}
inline Floats take_product(Floats sum, Floats a, Floats b) {
    return {_mm256_fnmadd_ps(a.low, b.low, sum.low), _mm256_fnmadd_ps(a.high, b.high, sum.high)};
}
inline Floats to_floats(Quads numbers) { return {_mm256_cvtepi32_ps(numbers.low), _mm256_cvtepi32_ps(numbers.high)}; }
inline Floats to_floats(const uint16_t (&halves)[product::ROWS]) {
    const auto at = reinterpret_cast<const __m128i *>(halves);
    return {_mm256_cvtph_ps(_mm_loadu_si128(at)), _mm256_cvtph_ps(_mm_loadu_si128(at + 1))};
}
inline float as_half(float value) { return _cvtsh_ss(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)); }

inline float to_float(uint16_t half) { return _cvtsh_ss(half); }
inline Floats as_floats(Quads bits) { return {_mm256_castsi256_ps(bits.low), _mm256_castsi256_ps(bits.high)}; }
inline Floats larger(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline float largest(Floats a, Floats b) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    const auto size = [&](__m256 floats) { return _mm256_andnot_ps(sign, floats); };
    const auto larger = [&](Floats floats) { return _mm256_max_ps(size(floats.low), size(floats.high)); };
    const __m256 eight = _mm256_max_ps(larger(a), larger(b));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline Quads rounded(Floats floats) { return {_mm256_cvtps_epi32(floats.low), _mm256_cvtps_epi32(floats.high)}; }
inline float total(Floats floats) {
    const __m256 eight = _mm256_add_ps(floats.low, floats.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline int32_t total(Quads numbers) {
    const __m256i eight = _mm256_add_epi32(numbers.low, numbers.high);
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
inline void store_bytes(int8_t * to, Quads numbers) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(numbers.low, numbers.high), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), bytes);
}

inline __m256i broadcast(const int8_t * column) {
    int32_t four;
    std::memcpy(&four, column, sizeof(four));
    return _mm256_set1_epi32(four);
}

}  // namespace
