// 16 lanes in four registers each: ARM's NEON.

#pragma once

#include <arm_neon.h>

#include <cstring>

#include "variant.h"

namespace {

struct Quads {  // four bytes, or one whole number, of each of 16 rows
    uint32x4_t part[4];
};
struct Floats {
    float32x4_t part[4];
};

#define EACH(TYPE, EXPRESSION)                             \
    TYPE found;                                            \
    for (int i = 0; i < 4; i++) found.part[i] = EXPRESSION; \
    return found

inline void hide(Quads & quads) {
    for (auto & part : quads.part) asm volatile("" : "+w"(part));
}
inline Quads fill(uint32_t value) { EACH(Quads, vdupq_n_u32(value)); }
inline Quads load(const void * from) { EACH(Quads, vld1q_u32(static_cast<const uint32_t *>(from) + 4 * i)); }
inline void store(void * to, Quads quads) {
    for (int i = 0; i < 4; i++) vst1q_u32(static_cast<uint32_t *>(to) + 4 * i, quads.part[i]);
}
inline Quads operator&(Quads a, Quads b) { EACH(Quads, vandq_u32(a.part[i], b.part[i])); }
inline Quads operator|(Quads a, Quads b) { EACH(Quads, vorrq_u32(a.part[i], b.part[i])); }
inline Quads operator^(Quads a, Quads b) { EACH(Quads, veorq_u32(a.part[i], b.part[i])); }
inline Quads operator<<(Quads a, int by) { EACH(Quads, vshlq_u32(a.part[i], vdupq_n_s32(by))); }
inline Quads operator>>(Quads a, int by) { EACH(Quads, vshlq_u32(a.part[i], vdupq_n_s32(-by))); }
inline Quads shift_signed(Quads a, int by) {
    EACH(Quads, vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(a.part[i]), vdupq_n_s32(-by))));
}

// 16 bytes of the rows i, 4 + i, 8 + i and 12 + i; the next four turn such registers.
inline Quads gather(const char * const (&rows)[product::ROWS], int first, size_t offset) {
    EACH(Quads, vreinterpretq_u32_u8(vld1q_u8(reinterpret_cast<const uint8_t *>(rows[4 * i + first] + offset))));
}
inline uint64x2_t as_pairs(uint32x4_t words) { return vreinterpretq_u64_u32(words); }
inline Quads low_words(Quads a, Quads b) { EACH(Quads, vzip1q_u32(a.part[i], b.part[i])); }
inline Quads high_words(Quads a, Quads b) { EACH(Quads, vzip2q_u32(a.part[i], b.part[i])); }
inline Quads low_pairs(Quads a, Quads b) {
    EACH(Quads, vreinterpretq_u32_u64(vzip1q_u64(as_pairs(a.part[i]), as_pairs(b.part[i]))));
}
inline Quads high_pairs(Quads a, Quads b) {
    EACH(Quads, vreinterpretq_u32_u64(vzip2q_u64(as_pairs(a.part[i]), as_pairs(b.part[i]))));
}

inline Quads operator+(Quads a, Quads b) { EACH(Quads, vaddq_u32(a.part[i], b.part[i])); }

inline Floats fill(float value) { EACH(Floats, vdupq_n_f32(value)); }
inline Floats load(const float * from) { EACH(Floats, vld1q_f32(from + 4 * i)); }
inline void store(float * to, Floats floats) {
    for (int i = 0; i < 4; i++) vst1q_f32(to + 4 * i, floats.part[i]);
}
inline Floats operator*(Floats a, Floats b) { EACH(Floats, vmulq_f32(a.part[i], b.part[i])); }
inline Floats add_product(Floats sum, Floats a, Floats b) {
    EACH(Floats, vfmaq_f32(sum.part[i], a.part[i], b.part[i]));
}
inline Floats take_product(Floats sum, Floats a, Floats b) {
    EACH(Floats, vfmsq_f32(sum.part[i], a.part[i], b.part[i]));
}
inline Floats to_floats(Quads numbers) { EACH(Floats, vcvtq_f32_s32(vreinterpretq_s32_u32(numbers.part[i]))); }
inline Floats to_floats(const uint16_t (&halves)[product::ROWS]) {
    EACH(Floats, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + 4 * i))));
}
inline float as_half(float value) { return static_cast<float>(static_cast<__fp16>(value)); }

inline float to_float(uint16_t half) {
    __fp16 value;
    std::memcpy(&value, &half, sizeof(value));
    return static_cast<float>(value);
}
inline Floats as_floats(Quads bits) { EACH(Floats, vreinterpretq_f32_u32(bits.part[i])); }
inline Floats larger(Floats a, Floats b) { EACH(Floats, vmaxq_f32(a.part[i], b.part[i])); }
inline float largest(Floats a, Floats b) {
    float most = 0.0f;
    for (int i = 0; i < 4; i++) {
        const float here = vmaxvq_f32(vmaxq_f32(vabsq_f32(a.part[i]), vabsq_f32(b.part[i])));
        most = here > most ? here : most;
    }
    return most;
}
inline Quads rounded(Floats floats) { EACH(Quads, vreinterpretq_u32_s32(vcvtnq_s32_f32(floats.part[i]))); }
inline float total(Floats floats) {
    return vaddvq_f32(vaddq_f32(vaddq_f32(floats.part[0], floats.part[1]), vaddq_f32(floats.part[2], floats.part[3])));
}
inline int32_t total(Quads numbers) {
    const uint32x4_t four = vaddq_u32(vaddq_u32(numbers.part[0], numbers.part[1]),
                                      vaddq_u32(numbers.part[2], numbers.part[3]));
    return static_cast<int32_t>(vaddvq_u32(four));
}
inline void store_bytes(int8_t * to, Quads numbers) {
    const auto halved = [&](int i) { return vcombine_u16(vmovn_u32(numbers.part[i]), vmovn_u32(numbers.part[i + 1])); };
    vst1q_u8(reinterpret_cast<uint8_t *>(to), vcombine_u8(vmovn_u16(halved(0)), vmovn_u16(halved(2))));
}

#undef EACH

}  // namespace
