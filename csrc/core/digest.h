// Digests of bytes, version 1: a sum of one keyed block for each group of 16 bytes, modulo 2^128
// (docs/spec/digests.md). Sums may be taken in any order and over any parts. Pure integers.
#pragma once
#include <cstdint>

#include "device.h"
#include "philox.h"

namespace fastseed {

// Philox4x32 with as few rounds as pass every test of BigCrush (Salmon et al., SC'11, table 2).
constexpr int kDigestRounds = 7;

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

// Bytes [row_bytes * row + ...) of a row in groups: at least one group, unless the row is empty.
FS_HD int64_t row_groups(int64_t row_bytes) {
  return (row_bytes + 15) / 16;
}

// What is digested in one launch: entries, as kDigestColumns words each. An entry has its groups /
// kDigestTile tiles, rounded up.
constexpr int kDigestColumns = 8;  // the key, the six fields of DigestRows, the first tile
constexpr int64_t kDigestTile = 1024;

struct DigestEntry {
  uint64_t key;
  DigestRows rows;
  int64_t first_tile;  // counted over all entries

  FS_HD int64_t groups() const {
    return rows.rows * row_groups(rows.row_bytes);
  }
  // The group that a tile begins with, or the end of all.
  FS_HD int64_t group_at(int64_t tile) const {
    const int64_t group = (tile - first_tile) * kDigestTile, all = groups();
    return group < all ? group : all;
  }
};

struct DigestPlan {
  const int64_t* words;
  int64_t entries;
  int64_t tiles;  // of all

  FS_HD int64_t first_tile(int64_t i) const {
    return i < entries ? words[kDigestColumns * i + 7] : tiles;
  }
  FS_HD DigestEntry entry(int64_t i) const {
    const int64_t* at = words + kDigestColumns * i;
    const auto* bytes = reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(at[1]));
    const DigestRows rows{
        bytes, at[2], at[3], at[4], static_cast<uint64_t>(at[5]), static_cast<uint64_t>(at[6])};
    return DigestEntry{static_cast<uint64_t>(at[0]), rows, at[7]};
  }

  // f(i, entry i, begin, end) of the groups of each entry that lie in the tiles [begin, end).
  template <class F>
  FS_HD void each_entry(int64_t begin, int64_t end, const F& f) const {
    int64_t low = 0, high = entries;  // the last entry that begins at this tile or before
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (first_tile(middle) <= begin ? low : high) = middle;
    }
    for (int64_t i = low; begin < end; ++i) {
      const int64_t next = first_tile(i + 1), stop = next < end ? next : end;
      if (begin < stop) {  // some entries have no groups
        const DigestEntry e = entry(i);
        f(i, e, e.group_at(begin), e.group_at(stop));
        begin = stop;
      }
    }
  }
};

// Adds the sum of entry i to sums[2 i] | sums[2 i + 1] << 64; items are tiles. The sums do not
// depend on how tiles are split over calls, nor on their order.
void launch_digest(const DigestPlan& plan, uint64_t* sums, Range part);
void launch_digest(const DigestPlan& plan, uint64_t* sums, CudaStream cuda);

}  // namespace fastseed
