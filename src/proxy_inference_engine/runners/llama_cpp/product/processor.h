// What this processor can do and its system lets programs use.

#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace product {

struct Processor {
    bool amx = false, avx512_vnni = false, avx_vnni = false, avx2 = false, neon_dotprod = false;

#if defined(__x86_64__)
    Processor() {
        const Leaf basic(1, 0), extended(7, 0), more(7, 1);
        const uint32_t kept = basic.has(basic.c, 27) ? kept_registers() : 0;
        const bool keeps_256 = (kept & 0x06) == 0x06, keeps_512 = (kept & 0xe6) == 0xe6;
        avx2 = keeps_256 && basic.has(basic.c, 12) && basic.has(basic.c, 29) && extended.has(extended.b, 5);
        avx_vnni = avx2 && extended.a >= 1 && more.has(more.a, 4);
        avx512_vnni = avx2 && keeps_512 && extended.has(extended.c, 11);
        for (const int part : {16, 17, 30, 31}) {  // F, DQ, BW, VL
            avx512_vnni = avx512_vnni && extended.has(extended.b, part);
        }
        const bool has_tiles = extended.has(extended.d, 24) && extended.has(extended.d, 25);  // and bytes in them
        amx = avx512_vnni && has_tiles && may_use_tiles();
    }

  private:
    struct Leaf {
        uint32_t a = 0, b = 0, c = 0, d = 0;

        Leaf(uint32_t leaf, uint32_t part) { __get_cpuid_count(leaf, part, &a, &b, &c, &d); }
        static bool has(uint32_t bits, int bit) { return bits >> bit & 1; }
    };

    // Linux keeps tiles for those programs only that asked for them.
    static bool may_use_tiles() {
        constexpr long ASK = 0x1023, TILE_DATA = 18;
        return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
    }

    // Which registers the system keeps when it switches between programs.
    static uint32_t kept_registers() {
        uint32_t low, high;
        asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        return low;
    }
#elif defined(__aarch64__)
    Processor() : neon_dotprod(getauxval(AT_HWCAP) >> 20 & 1) {}
#endif
};

}  // namespace product
