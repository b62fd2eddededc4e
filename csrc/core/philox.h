// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11). Pure integers: no torch, no CUDA runtime, no
// allocation. Frozen: a change to any output word is a new derivation version, never a fix.
#pragma once
#include <cstdint>

#include "macros.h"

namespace fastseed {

constexpr uint32_t kPhiloxM0 = 0xD2511F53u;
constexpr uint32_t kPhiloxM1 = 0xCD9E8D57u;
constexpr uint32_t kPhiloxW0 = 0x9E3779B9u;
constexpr uint32_t kPhiloxW1 = 0xBB67AE85u;
constexpr int kPhiloxRounds = 10;

struct Block {
  uint32_t w[4];

  FS_HD uint64_t lo() const {
    return w[0] | static_cast<uint64_t>(w[1]) << 32;
  }
  FS_HD uint64_t hi() const {
    return w[2] | static_cast<uint64_t>(w[3]) << 32;
  }
};

// The lower half, as a number of 32 bits that the compiler does not take for a part of a longer
// one: its products would become more than one wide multiply.
FS_HD uint32_t low_word(uint64_t x) {
#if defined(__CUDA_ARCH__)
  uint32_t low;
  asm("cvt.u32.u64 %0, %1;" : "=r"(low) : "l"(x));
  return low;
#else
  return static_cast<uint32_t>(x);
#endif
}

// 128 bits of output for (key, counter). Total, stateless, endian-free.
template <int kRounds = kPhiloxRounds>
FS_HD Block philox4x32(uint64_t key, Block counter) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  Block c = counter;
  for (int round = 0; round < kRounds; ++round) {
    // Written as one 64-bit product: a single wide multiply on every target.
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c.w[0];
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * c.w[2];
    c = Block{{static_cast<uint32_t>(p1 >> 32) ^ c.w[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ c.w[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return c;
}

}  // namespace fastseed
