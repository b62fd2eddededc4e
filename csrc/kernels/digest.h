// Digests of memory: the loops behind csrc/core/digest.h.
#pragma once
#include <cstdint>

namespace fastseed {

// Adds the blocks of `groups` groups of 16 bytes, whose places count up from `place`, to
// total[0] | total[1] << 64.
using DigestGroups = void (*)(uint64_t key, uint64_t place, const uint8_t* bytes, int64_t groups,
                              uint64_t* total);

// Rows of equal length, each of whole groups but the last, which is filled up with zeros.
struct DigestRows {
  const uint8_t* bytes;
  int64_t row_bytes;
  int64_t rows;
  int64_t stride;         // bytes from one row to the next
  uint64_t place;         // of the first group
  uint64_t place_stride;  // from one row's first group to the next one's
};

// Adds the groups [begin, end) of all of them, counted row after row. The sum does not depend on
// how the groups are split over calls.
void launch_digest(uint64_t key, const DigestRows& rows, int64_t begin, int64_t end,
                   uint64_t* total);

// Bytes [row_bytes * row + ...) of a row in groups: at least one group, unless the row is empty.
inline int64_t row_groups(int64_t row_bytes) {
  return (row_bytes + 15) / 16;
}

void digest_groups_portable(uint64_t key, uint64_t place, const uint8_t* bytes, int64_t groups,
                            uint64_t* total);
#if defined(__x86_64__)
void digest_groups_avx2(uint64_t key, uint64_t place, const uint8_t* bytes, int64_t groups,
                        uint64_t* total);
void digest_groups_avx512(uint64_t key, uint64_t place, const uint8_t* bytes, int64_t groups,
                          uint64_t* total);
#endif

}  // namespace fastseed
