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

  // Word i: devices have no registers with an index.
  FS_HD uint32_t word(uint64_t i) const {
    return i < 2 ? (i == 0 ? w[0] : w[1]) : (i == 2 ? w[2] : w[3]);
  }
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

// One round, as 64-bit products: a single wide multiply each on every target.
FS_HD Block philox_round(Block c, uint32_t k0, uint32_t k1) {
  const uint64_t p0 = static_cast<uint64_t>(kPhiloxM0) * c.w[0];
  const uint64_t p1 = static_cast<uint64_t>(kPhiloxM1) * c.w[2];
  return Block{{static_cast<uint32_t>(p1 >> 32) ^ c.w[1] ^ k0, static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ c.w[3] ^ k1, static_cast<uint32_t>(p0)}};
}

// How many of `n` numbers from `first` on, modulo 2^64, have its upper half: up to a multiple of
// 2^32.
FS_HD int64_t same_upper_half(uint64_t first, int64_t n) {
  const int64_t left = static_cast<int64_t>((uint64_t{1} << 32) - (first & 0xffffffffu));
  return n < left ? n : left;
}

// 128 bits of output for (key, counter). Total, stateless, endian-free.
template <int kRounds = kPhiloxRounds>
FS_HD Block philox4x32(uint64_t key, Block counter) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  Block c = counter;
  for (int round = 0; round < kRounds; ++round) {
    c = philox_round(c, k0, k1);
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  return c;
}

}  // namespace fastseed
