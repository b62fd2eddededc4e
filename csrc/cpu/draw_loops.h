// The loops of DrawLoops, for compilers to make vector code of: the functions of core/draw.h
// themselves, a block an iteration, no branch between.
//
// The functions of core/ are inlined into what has FS_TARGET; copies that are not are code for any
// CPU.
#pragma once
#include <cstring>

#include "dispatch.h"

namespace fastseed {
namespace {

template <class D>
FS_TARGET inline void each_block(const D& distribution, Key key, uint64_t block,
                                 const uint32_t* __restrict words, int64_t blocks,
                                 typename D::Value* __restrict out) {
  constexpr int kEach = 4 / D::kWords;
  const D copy = distribution;  // `out` cannot be a part of it
  for (int64_t b = 0; b < blocks; ++b) {
    const uint32_t* w = words + 4 * b;
    typename D::Value values[kEach];
    copy(Drawn{Block{{w[0], w[1], w[2], w[3]}}, key, block + static_cast<uint64_t>(b)}, values);
    for (int i = 0; i < kEach; ++i) {
      out[kEach * b + i] = values[i];
    }
  }
}

// Integers as if no word were rejected. Returns whether that is so.
template <class T>
FS_TARGET inline bool accepted(const RandIntNarrow<T>& distribution,
                               const uint32_t* __restrict words, int64_t blocks,
                               T* __restrict out) {
  const uint64_t low = static_cast<uint64_t>(distribution.low);
  const uint32_t range = distribution.range, threshold = distribution.threshold;
  uint32_t rejected = 0;
  for (int64_t i = 0; i < 4 * blocks; ++i) {
    const uint64_t product = static_cast<uint64_t>(words[i]) * range;
    rejected |= static_cast<uint32_t>(product) < threshold;
    out[i] = static_cast<T>(low + (product >> 32));
  }
  return rejected == 0;
}

template <class D>
FS_TARGET bool convert(const D& distribution, Key key, uint64_t block,
                       const uint32_t* __restrict words, int64_t blocks,
                       typename D::Value* __restrict out) {
  if constexpr (kRetries<D> && D::kWords == 1) {
    constexpr int64_t kStep = 16;  // so that one rejected word costs little
    bool all = true;
    for (int64_t b = 0; b < blocks; b += kStep) {
      const int64_t n = blocks - b < kStep ? blocks - b : kStep;
      if (!accepted(distribution, words + 4 * b, n, out + 4 * b)) {
        each_block(distribution, key, block + static_cast<uint64_t>(b), words + 4 * b, n,
                   out + 4 * b);
        all = false;
      }
    }
    return all;
  } else {
    each_block(distribution, key, block, words, blocks, out);
    return !kRetries<D>;
  }
}

FS_TARGET void row_words(const uint64_t* __restrict keys, const uint64_t* __restrict firsts,
                         int64_t rows, int64_t per_row, uint32_t* __restrict words) {
  alignas(64) uint32_t column[4 * kSideBySide];  // block k of each row
  for (int64_t k = 0; k < per_row; ++k) {
    for (int64_t row = 0; row < rows; ++row) {
      const Block b =
          draw_block(Key{keys[2 * row], keys[2 * row + 1]}, firsts[row] + static_cast<uint64_t>(k));
      for (int i = 0; i < 4; ++i) {
        column[4 * row + i] = b.w[i];
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(words + 4 * (row * per_row + k), column + 4 * row, 16);
    }
  }
}

#define FS_ADDRESS(D) , &convert<D>
constexpr DrawLoops kDrawLoops{&row_words FS_EACH_DISTRIBUTION(FS_ADDRESS)};
#undef FS_ADDRESS

}  // namespace
}  // namespace fastseed
