// The loops of draws_paths.h, for compilers to make vector code of: the functions of core/draw.h
// themselves, a block an iteration, no branch between.
//
// The including file defines FS_PATH, a struct of draws_paths.h, and FS_TARGET, its attribute. The
// functions of core/ are inlined into what has that attribute; copies that are not are code for any
// CPU.
#pragma once
#include "draws_paths.h"

namespace fastseed {

template <class D>
FS_TARGET void FS_PATH::convert(const D& distribution, Key key, uint64_t block,
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

FS_TARGET void FS_PATH::row_words(const uint64_t* __restrict keys,
                                  const uint64_t* __restrict firsts, int64_t rows, int64_t per_row,
                                  uint32_t* __restrict words) {
  for (int64_t k = 0; k < per_row; ++k) {
    for (int64_t row = 0; row < rows; ++row) {
      const Block b =
          draw_block(Key{keys[2 * row], keys[2 * row + 1]}, firsts[row] + static_cast<uint64_t>(k));
      uint32_t* to = words + 4 * (row * per_row + k);
      to[0] = b.w[0];
      to[1] = b.w[1];
      to[2] = b.w[2];
      to[3] = b.w[3];
    }
  }
}

#define FS_INSTANTIATE(D)                                                                         \
  template void FS_PATH::convert<D>(const D&, Key, uint64_t, const uint32_t* __restrict, int64_t, \
                                    D::Value* __restrict);
FS_EACH_DISTRIBUTION(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
