// Digests of bytes, version 1: a sum of one keyed block for each group of 16 bytes, modulo 2^128
// (docs/spec/digests.md). Sums may be taken in any order and over any parts. Pure integers.
#pragma once
#include <cstdint>

#include "macros.h"
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

// Rows of equal length, each of whole groups but the last, which is filled up with zeros.
struct DigestRows {
  const uint8_t* bytes;
  int64_t row_bytes;
  int64_t rows;
  int64_t stride;         // bytes from one row to the next
  uint64_t group_number;  // of the first group
  uint64_t group_stride;  // from one row's first group to the next one's
};

// Adds the groups [begin, end) of all of them, counted row after row. The sum does not depend on
// how the groups are split over calls.
void launch_digest(uint64_t key, const DigestRows& rows, int64_t begin, int64_t end,
                   uint64_t* total);

// Bytes [row_bytes * row + ...) of a row in groups: at least one group, unless the row is empty.
FS_HD int64_t row_groups(int64_t row_bytes) {
  return (row_bytes + 15) / 16;
}

// The same of all entries on a CUDA device, in one launch that nothing waits for. `plan` is in the
// device's memory, kDigestColumns words an entry: its key, the six fields of DigestRows, and how
// many tiles come before its first one. An entry has its groups / kDigestTile tiles, rounded up;
// all have `tiles`. Adds the sum of entry i to sums[2 i] | sums[2 i + 1] << 64.
constexpr int kDigestColumns = 8;
constexpr int kDigestTile = 1024;
void launch_digest_cuda(const int64_t* plan, int64_t entries, int64_t tiles, uint64_t* sums,
                        void* cuda_stream);

}  // namespace fastseed
