// What the tests of both digests share: layouts of rows in memory that ends where they do, and
// their sums by the core alone.
#pragma once
#include <algorithm>
#include <memory>

#include "../../csrc/core/digest.h"
#include "check.h"

namespace fastseed {

struct Sum {
  uint64_t w[2] = {};

  bool operator==(const Sum& other) const {
    return w[0] == other.w[0] && w[1] == other.w[1];
  }
};

// Rows as DigestRows has them, `shift` bytes behind an address of 64-byte alignment.
struct RowLayout {
  uint64_t key;
  int64_t row_bytes, rows, stride;
  uint64_t group_number, group_stride;
  int shift;

  int64_t groups() const {
    return rows * row_groups(row_bytes);
  }
  int64_t bytes() const {
    return rows == 0 ? 0 : (rows - 1) * stride + row_bytes;
  }
  DigestRows at(const uint8_t* memory) const {
    return DigestRows{memory, row_bytes, rows, stride, group_number, group_stride};
  }
  // Of a plan.
  std::vector<int64_t> words(const uint8_t* memory, int64_t first_tile) const {
    return {static_cast<int64_t>(key),
            static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory)),
            row_bytes,
            rows,
            stride,
            static_cast<int64_t>(group_number),
            static_cast<int64_t>(group_stride),
            first_tile};
  }
  std::string text() const {
    return std::to_string(rows) + " rows of " + std::to_string(row_bytes) + " bytes every " +
           std::to_string(stride) + ", group_number " + std::to_string(group_number) + " by " +
           std::to_string(group_stride) + ", shift " + std::to_string(shift);
  }
};

inline std::vector<uint8_t> bytes_of(const RowLayout& layout) {
  std::vector<uint8_t> bytes(static_cast<size_t>(layout.bytes()));
  uint32_t state = 12345u + static_cast<uint32_t>(layout.row_bytes);
  for (uint8_t& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

// The sum of groups [begin, end), one after another, with 128 bits carried by hand.
inline Sum by_the_core(const RowLayout& layout, const uint8_t* memory, int64_t begin, int64_t end) {
  const int64_t per_row = row_groups(layout.row_bytes);
  Sum sum;
  for (int64_t g = begin; g < end; ++g) {
    const int64_t row = g / per_row, column = g % per_row;
    Block block = {};
    for (int64_t i = 16 * column; i < std::min(layout.row_bytes, 16 * column + 16); ++i) {
      const int64_t at = i - 16 * column;
      block.w[at / 4] |= static_cast<uint32_t>(memory[row * layout.stride + i]) << (8 * (at % 4));
    }
    const uint64_t group_number = layout.group_number +
                                  static_cast<uint64_t>(row) * layout.group_stride +
                                  static_cast<uint64_t>(column);
    const Block r = digest_group(layout.key, group_number, block);
    sum.w[0] += r.lo();
    sum.w[1] += r.hi() + (sum.w[0] < r.lo() ? 1 : 0);
  }
  return sum;
}

// Short and long rows, with and without gaps, places that carry, every alignment of addresses.
template <class F>
void each_layout(const F& f) {
  const uint64_t key = 0xfffffffe12345678u;
  const int64_t lengths[] = {1,  2,  3,  4,  7,   8,   12,   15,   16,
                             17, 31, 32, 48, 100, 112, 2047, 2048, 2066};
  int turn = 0;
  for (const int64_t row_bytes : lengths) {
    for (const int64_t rows : {0, 1, 2, 5, 67}) {
      for (const int64_t gap : {0, 1, 16, 4}) {
        const uint64_t per_row = static_cast<uint64_t>(row_groups(row_bytes));
        const uint64_t places[][2] = {
            {0, per_row}, {(uint64_t{1} << 32) - 3, per_row}, {~uint64_t{0} - 5, per_row + 7}};
        const auto& group_number = places[turn % 3];
        const int shifts[] = {0, 1, 2, 4, 8, 16};
        f(RowLayout{key + static_cast<uint64_t>(turn), row_bytes, rows, row_bytes + gap,
                    group_number[0], group_number[1], shifts[turn % 6]});
        ++turn;
      }
    }
  }
  for (const int64_t row_bytes : {16 * 1023, 16 * 1024, 16 * 1024 + 16, 16 * 5000, 16 * 5000 + 5}) {
    for (const int shift : {0, 1, 2, 4, 16}) {
      for (const int64_t rows : {1, 3}) {
        const uint64_t per_row = static_cast<uint64_t>(row_groups(row_bytes));
        f(RowLayout{key, row_bytes, rows, row_bytes, 9, per_row, shift});
      }
    }
  }
  f(RowLayout{key, 0, 5, 0, 0, 0, 0});
  f(RowLayout{key, 64, 100, 0, 0, 4, 0});  // one row, again and again
}

}  // namespace fastseed
