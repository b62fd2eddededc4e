// Layouts of draws on devices, where divisions are slow.
#pragma once
#include "../core/strided_layout.h"
#include "device.cuh"
#include "store.cuh"

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

// Items of one launch, so that what numbers them has 32 bits. An output of more takes several.
constexpr int64_t kMostItems = int64_t{1} << 30;

// Every output that is written a block of kEach values at a time. A line is one run of one row, an
// item one block of a line, which may begin before the line or end behind it. The Body has
//   open(row)                            what the items of a row share; `first` is the index of its
//                                        first value in the stream
//   write(opened, block, at, inside)     the values of a block, of which the first is value `at` of
//                                        the output
template <class Body>
struct OverLines {
  static constexpr int kMinBlocks = Body::kMinBlocks;
  Body body;
  FastLayout layout;
  int64_t first_line;
  int64_t first_block;  // of every line
  uint32_t items;
  uint32_t per_line;
  Divider line_of;

  FS_DEVICE void operator()(ThreadIndex at) const {
#pragma unroll 1
    for (uint32_t item = at.block * kThreads + at.thread; item < items;
         item += at.blocks * kThreads) {
      one(item);
    }
  }

  FS_DEVICE void one(uint32_t item) const {
    constexpr int64_t kEach = Body::kEach;
    const uint32_t local = line_of.quotient(item);
    const int64_t line = first_line + local;
    const int64_t row = layout.runs.quotient(line);
    const auto opened = body.open(row);
    const uint64_t start =
        opened.first + static_cast<uint64_t>(layout.start(line - row * layout.runs.divisor()));
    const int64_t skip = first_block + (item - local * per_line);
    const int64_t from = skip * kEach - static_cast<int64_t>(start % kEach);
    if (from < layout.length) {
      body.write(opened, start / kEach + static_cast<uint64_t>(skip), line * layout.length + from,
                 Inside{from, layout.length});
    }
  }
};

// `most` is for tests: what the output is made of does not depend on it.
template <class Body>
void launch_lines(const Body& body, const Layout& layout, int64_t rows, const char* op,
                  CudaStream cuda, int64_t most = kMostItems) {
  constexpr int64_t kEach = Body::kEach;
  const FastLayout fast(layout, rows);
  const int64_t lines = rows * layout.runs;
  const int64_t blocks = (layout.length + kEach - 2) / kEach + 1;  // wherever in one it begins
  for (int64_t b = 0; b < blocks; b += most) {
    const int64_t per_line = std::min(blocks - b, most);
    const int64_t together = most / per_line;
    for (int64_t line = 0; line < lines; line += together) {
      const int64_t count = std::min(lines - line, together);
      const uint32_t each = static_cast<uint32_t>(per_line);
      launch(OverLines<Body>{body, fast, line, b, static_cast<uint32_t>(count) * each, each,
                             Divider(each)},
             (count * per_line + kThreads - 1) / kThreads, op, cuda);
    }
  }
}

}  // namespace fastseed
