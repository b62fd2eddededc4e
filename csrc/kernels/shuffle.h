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

// out[k] = the position of numbers[k], -1 if that is not in [0, n). No overlap but out == numbers.
void launch_shuffle_positions(const Shuffle& shuffle, const int64_t* numbers, int64_t count,
                              int64_t* out);
void launch_shuffle_positions_cuda(const Shuffle& shuffle, const int64_t* numbers, int64_t count,
                                   int64_t* out, void* cuda_stream);

}  // namespace fastseed
