// The loops of SamplingLoops, for compilers to make vector code of. Those that find indices decide
// about a group of tokens at once: most groups hold nothing.
#pragma once
#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kGroup = 64;

FS_TARGET OrderRange order_range(const float* __restrict x, int64_t n) {
  uint32_t least = 0xffffffffu, greatest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t order = order_of(x[i]);
    least = order < least ? order : least;
    greatest = order > greatest ? order : greatest;
  }
  return OrderRange{least, greatest};
}

// The indices below n for which holds(i), a function of FS_TARGET.
template <class Holds>
FS_TARGET inline int64_t indices_where(const Holds& holds, int64_t n, int32_t* __restrict found) {
  int64_t count = 0;
  for (int64_t begin = 0; begin < n; begin += kGroup) {
    const int64_t end = n - begin < kGroup ? n : begin + kGroup;
    if (end - begin == kGroup) {
      uint32_t any = 0;
      for (int64_t i = begin; i < begin + kGroup; ++i) {
        any |= holds.test(i);
      }
      if (any == 0) {
        continue;
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      found[count] = static_cast<int32_t>(i);
      count += holds.test(i);
    }
  }
  return count;
}

struct InOrder {
  const float* __restrict x;
  uint32_t low, span;

  FS_TARGET inline uint32_t test(int64_t i) const {
    return order_of(x[i]) - low <= span;
  }
};

FS_TARGET int64_t select(const float* __restrict x, int64_t n, uint32_t low, uint32_t high,
                         int32_t* __restrict found) {
  return indices_where(InOrder{x, low, high - low}, n, found);
}

struct MayWin {
  ScoreBound bound;
  const float* __restrict x;
  const uint32_t* __restrict words;

  FS_TARGET inline uint32_t test(int64_t i) const {
    return bound.may_win(x[i], words[i]);
  }
};

FS_TARGET int64_t candidates(const ScoreBound& bound, const float* __restrict x,
                             const uint32_t* __restrict words, int64_t n,
                             int32_t* __restrict found) {
  return indices_where(MayWin{bound, x, words}, n, found);
}

FS_TARGET void masses(const float* __restrict x, int64_t n, float greatest, double temperature,
                      int64_t* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = token_mass(x[i], greatest, temperature);
  }
}

constexpr SamplingLoops kSamplingLoops{&order_range, &select, &candidates, &masses};

}  // namespace
}  // namespace fastseed
