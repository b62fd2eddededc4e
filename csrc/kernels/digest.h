// Digests of memory: the loops behind csrc/core/digest.h.
#pragma once
#include <cstdint>

#include "../core/macros.h"

namespace fastseed {

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
