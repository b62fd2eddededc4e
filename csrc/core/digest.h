// Digests of bytes, version 1: a sum of one keyed block for each group of 16 bytes, modulo 2^128
// (docs/spec/digests.md). Sums may be taken in any order and over any parts. Pure integers.
#pragma once
#include <cstdint>

#include "philox.h"

namespace fastseed {

// Philox4x32 with as few rounds as pass every test of BigCrush (Salmon et al., SC'11, table 2).
constexpr int kDigestRounds = 7;
constexpr int kGroupBytes = 16;

// The sum of the blocks' four words, each in 64 bits, and for how many groups these have room.
constexpr int64_t kMaxGroupsPerSum = int64_t{1} << 32;
struct WordSums {
  uint64_t w[4];
};

// The block of one group: its bytes are the counter, its number the key.
FS_HD Block digest_group(uint64_t key, uint64_t group_number, Block bytes) {
  return philox4x32<kDigestRounds>(key + group_number, bytes);
}

// low | high << 64 = w0 + w1 2^32 + w2 2^64 + w3 2^96, modulo 2^128; added to `total`.
FS_HD void fold_sums(const WordSums& sums, uint64_t* total) {
  const uint64_t carried = sums.w[1] >> 32;
  uint64_t low = total[0] + sums.w[0];
  uint64_t high = total[1] + (low < sums.w[0] ? 1 : 0);
  const uint64_t shifted = sums.w[1] << 32;
  low += shifted;
  high += (low < shifted ? 1 : 0) + carried;
  total[0] = low;
  total[1] = high + sums.w[2] + (sums.w[3] << 32);
}

}  // namespace fastseed
