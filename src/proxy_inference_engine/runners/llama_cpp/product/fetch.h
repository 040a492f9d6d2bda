// Asks the memory for what will be read soon.

#pragma once

#include <cstddef>
#include <cstdint>

namespace {

// Inlined, since GCC leaves out calls of a function that only asks.
__attribute__((always_inline)) inline void fetch(const char * from, size_t bytes) {
    constexpr size_t LINE_BYTES = 64;
    for (size_t at = 0; at < bytes; at += LINE_BYTES) __builtin_prefetch(from + at);
}

constexpr int SOON = 24;  // keys: so many before they are read

// Halves of a head's keys or values. They lie too far from each other for the processor to foresee them.
inline void fetch_rows(const char * from, size_t next, int64_t count, int64_t width) {
    for (int64_t i = 0; i < count; i++, from += next) fetch(from, sizeof(uint16_t) * width);
}

}  // namespace
