// The order of an epoch in bulk: the loops behind csrc/core/shuffle.h.
#pragma once
#include <cstdint>

#include "../core/shuffle.h"

namespace fastseed {

// Positions start + k * stride, 0 <= k < count: all in [0, n) of the permutation.
struct Positions {
  int64_t start;
  int64_t stride;
  int64_t count;

  FS_HD int64_t operator[](int64_t k) const {
    return start + k * stride;
  }
};

// out[k] = the number at position k of `at`. Any split of `at` gives the same.
void launch_shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out);
void launch_shuffle_cuda(const Shuffle& shuffle, const Positions& at, int64_t* out,
                         void* cuda_stream);

// Philox's round keys with all that the blocks of a Feistel round have in common: round p of a
// block adds k0[p] and k1[p], but second[r] and third[r] for k1[1] and k1[2], which are what
// Feistel round r alone has. Saves 3 of the 20 products.
struct ShuffleKeys {
  uint32_t k0[kPhiloxRounds];
  uint32_t k1[kPhiloxRounds];
  uint32_t second[kShuffleMostRounds];
  uint32_t third[kShuffleMostRounds];

  explicit ShuffleKeys(const Shuffle& s) {
    for (int p = 0; p < kPhiloxRounds; ++p) {
      k0[p] = static_cast<uint32_t>(s.key) + static_cast<uint32_t>(p) * kPhiloxW0;
      k1[p] = static_cast<uint32_t>(s.key >> 32) + static_cast<uint32_t>(p) * kPhiloxW1;
    }
    const uint64_t first = static_cast<uint64_t>(kPhiloxM1) * s.w2;  // of Philox's round 0
    for (int r = 0; r < kShuffleMostRounds; ++r) {
      const uint32_t c0 = static_cast<uint32_t>(first >> 32) ^ shuffle_w1(r) ^ k0[0];
      const uint64_t product = static_cast<uint64_t>(kPhiloxM0) * c0;  // of its round 1
      second[r] = k1[1] ^ static_cast<uint32_t>(product >> 32);
      third[r] = k1[2] ^ static_cast<uint32_t>(product);
    }
    k1[0] ^= s.w3;
    k0[1] ^= static_cast<uint32_t>(first);
  }
};

}  // namespace fastseed
