// 16 lanes in one register each: AVX-512.

#pragma once

#include <immintrin.h>

#include <cstring>

#include "variant.h"

namespace {

struct Quads {  // four bytes, or one whole number, of each of 16 rows
    __m512i all;
};
struct Floats {
    __m512 all;
};

inline void hide(Quads & quads) { asm volatile("" : "+v"(quads.all)); }  // what is in it, from the compiler
inline Quads fill(uint32_t value) { return {_mm512_set1_epi32(static_cast<int>(value))}; }
inline Quads load(const void * from) { return {_mm512_load_si512(from)}; }
inline void store(void * to, Quads quads) { _mm512_store_si512(to, quads.all); }
inline Quads operator&(Quads a, Quads b) { return {_mm512_and_si512(a.all, b.all)}; }
inline Quads operator|(Quads a, Quads b) { return {_mm512_or_si512(a.all, b.all)}; }
inline Quads operator^(Quads a, Quads b) { return {_mm512_xor_si512(a.all, b.all)}; }
inline Quads operator<<(Quads a, int by) { return {_mm512_slli_epi32(a.all, by)}; }
inline Quads operator>>(Quads a, int by) { return {_mm512_srli_epi32(a.all, by)}; }
inline Quads shift_signed(Quads a, int by) { return {_mm512_srai_epi32(a.all, by)}; }

// 16 bytes of the rows i, 4 + i, 8 + i and 12 + i; the next four turn such registers.
inline Quads gather(const char * const (&rows)[product::ROWS], int i, size_t offset) {
    const auto row = [&](int which) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i *>(rows[which] + offset));
    };
    __m512i found = _mm512_castsi128_si512(row(i));
    found = _mm512_inserti32x4(found, row(4 + i), 1);
    found = _mm512_inserti32x4(found, row(8 + i), 2);
    return {_mm512_inserti32x4(found, row(12 + i), 3)};
}
inline Quads low_words(Quads a, Quads b) { return {_mm512_unpacklo_epi32(a.all, b.all)}; }
inline Quads high_words(Quads a, Quads b) { return {_mm512_unpackhi_epi32(a.all, b.all)}; }
inline Quads low_pairs(Quads a, Quads b) { return {_mm512_unpacklo_epi64(a.all, b.all)}; }
inline Quads high_pairs(Quads a, Quads b) { return {_mm512_unpackhi_epi64(a.all, b.all)}; }

inline Quads operator+(Quads a, Quads b) { return {_mm512_add_epi32(a.all, b.all)}; }

inline Floats fill(float value) { return {_mm512_set1_ps(value)}; }
inline Floats load(const float * from) { return {_mm512_loadu_ps(from)}; }
inline void store(float * to, Floats floats) { _mm512_storeu_ps(to, floats.all); }
inline Floats operator*(Floats a, Floats b) { return {_mm512_mul_ps(a.all, b.all)}; }
inline Floats add_product(Floats sum, Floats a, Floats b) { return {_mm512_fmadd_ps(a.all, b.all, sum.all)}; }
inline Floats take_product(Floats sum, Floats a, Floats b) { return {_mm512_fnmadd_ps(a.all, b.all, sum.all)}; }
inline Floats to_floats(Quads numbers) { return {_mm512_cvtepi32_ps(numbers.all)}; }
inline Floats to_floats(const uint16_t (&halves)[product::ROWS]) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(halves)))};
}
inline float as_half(float value) { return _cvtsh_ss(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)); }

inline float to_float(uint16_t half) { return _cvtsh_ss(half); }
inline Floats as_floats(Quads bits) { return {_mm512_castsi512_ps(bits.all)}; }
inline Floats larger(Floats a, Floats b) { return {_mm512_max_ps(a.all, b.all)}; }
inline float largest(Floats a, Floats b) {
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a.all), _mm512_abs_ps(b.all)));
}
inline Quads rounded(Floats floats) { return {_mm512_cvtps_epi32(floats.all)}; }
inline float total(Floats floats) { return _mm512_reduce_add_ps(floats.all); }
inline int32_t total(Quads numbers) { return _mm512_reduce_add_epi32(numbers.all); }
inline void store_bytes(int8_t * to, Quads numbers) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm512_cvtepi32_epi8(numbers.all));
}

}  // namespace
