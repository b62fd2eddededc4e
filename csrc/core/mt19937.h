// States of the Mersenne Twister MT19937 (Matsumoto, Nishimura, ACM TOMACS 1998): the expansion of
// a 128-bit key into all 624 words, and the classic initialization from 32 bits. Pure.
#pragma once
#include <cstdint>

#include "derive.h"

namespace fastseed {

constexpr int kMtWords = 624;
constexpr int kMtBlocks = kMtWords / 4;
constexpr uint32_t kMtTopBit = 0x80000000u;
constexpr uint32_t kMtInitMultiplier = 1812433253u;

// The counter of block j of the expansion under the key `lo`: it carries the other 64 bits.
FS_HD Block mt19937_counter(Key key, uint32_t j) {
  return Block{{j, with_domain(0, Domain::kState), static_cast<uint32_t>(key.hi),
                static_cast<uint32_t>(key.hi >> 32)}};
}

// One step of init_genrand of mt19937ar.c (2002): word j from word j - 1.
FS_HD uint32_t mt19937_init_step(uint32_t previous, uint32_t j) {
  return kMtInitMultiplier * (previous ^ (previous >> 30)) + j;
}

// What manual_seed(seed) of a torch CPU generator writes: 32 bits of the seed decide the state.
FS_HD void mt19937_init(uint32_t seed, uint32_t* state) {
  state[0] = seed;
  for (uint32_t j = 1; j < kMtWords; ++j) {
    state[j] = mt19937_init_step(state[j - 1], j);
  }
}

}  // namespace fastseed
