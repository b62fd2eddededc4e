// Which values of a draw an output holds: all of them, or those of a part of a logical tensor.
#pragma once
#include <cstdint>

#include "macros.h"

namespace fastseed {

// `runs` runs of `length` values that are consecutive both in the output and in the draw. The
// first of all is value `offset` of the draw; further runs are numbered row by row over `dims`
// outer dimensions.
struct Layout {
  static constexpr int kMaxDims = 7;
  int64_t length;
  int64_t runs;
  int64_t offset;
  int dims;
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxDims];

  // The value that a run begins with.
  FS_HD int64_t start(int64_t run) const {
    int64_t value = offset;
    for (int d = dims - 1; d >= 0; --d) {
      value += run % sizes[d] * strides[d];
      run /= sizes[d];
    }
    return value;
  }
};

}  // namespace fastseed
