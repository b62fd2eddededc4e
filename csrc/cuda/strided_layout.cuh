// Layouts of draws on devices, where divisions are slow.
#pragma once
#include "../core/strided_layout.h"
#include "device.cuh"

namespace fastseed {

// Divides numbers of any size, fast where all of them are below 2^31.
class AnyDivider {
 public:
  AnyDivider() = default;
  AnyDivider(int64_t divisor, int64_t largest)
      : divisor_(divisor), wide_(largest >= kLimit || divisor > kLimit) {
    if (!wide_) {
      fast_ = Divider(static_cast<uint32_t>(divisor));
    }
  }

  FS_HD int64_t quotient(int64_t n) const {
    return wide_ ? static_cast<int64_t>(static_cast<uint64_t>(n) / static_cast<uint64_t>(divisor_))
                 : fast_.quotient(static_cast<uint32_t>(n));
  }
  FS_HD int64_t divisor() const {
    return divisor_;
  }

 private:
  static constexpr int64_t kLimit = int64_t{1} << 31;

  int64_t divisor_ = 1;
  Divider fast_ = Divider(1);
  bool wide_ = false;
};

// The same as a Layout (../core/strided_layout.h).
struct FastLayout {
  int64_t length;
  int64_t offset;
  int dims;
  AnyDivider runs;
  AnyDivider sizes[Layout::kMaxDims];
  int64_t strides[Layout::kMaxDims];

  FastLayout(const Layout& layout, int64_t rows)
      : length(layout.length),
        offset(layout.offset),
        dims(layout.dims),
        runs(layout.runs, rows * layout.runs) {
    for (int d = 0; d < dims; ++d) {
      sizes[d] = AnyDivider(layout.sizes[d], layout.runs);
      strides[d] = layout.strides[d];
    }
  }

  // The value that a run begins with.
  FS_DEVICE int64_t start(int64_t run) const {
    int64_t value = offset;
    for (int d = dims - 1; d >= 0; --d) {
      const int64_t outer = sizes[d].quotient(run);
      value += (run - outer * sizes[d].divisor()) * strides[d];
      run = outer;
    }
    return value;
  }
};

}  // namespace fastseed
