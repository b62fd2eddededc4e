// The loops of SamplingLoops, for compilers to make vector code of. Those that find indices decide
// about a group of tokens at once: most groups hold nothing.
//
// The including file defines FS_DRAW_TARGET, the attribute of its instruction set.
#pragma once
#include "../kernels/sampling.h"

namespace fastseed {
namespace {

constexpr int64_t kGroup = 64;

FS_DRAW_TARGET OrderRange orders(const float* __restrict x, int64_t n) {
  uint32_t least = 0xffffffffu, greatest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t order = order_of(x[i]);
    least = order < least ? order : least;
    greatest = order > greatest ? order : greatest;
  }
  return OrderRange{least, greatest};
}

// The indices below n for which holds(i), a function of FS_DRAW_TARGET.
template <class Holds>
FS_DRAW_TARGET inline int64_t indices_where(const Holds& holds, int64_t n,
                                            int32_t* __restrict found) {
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

  FS_DRAW_TARGET inline uint32_t test(int64_t i) const {
    return order_of(x[i]) - low <= span;
  }
};

FS_DRAW_TARGET int64_t select(const float* __restrict x, int64_t n, uint32_t low, uint32_t high,
                              int32_t* __restrict found) {
  return indices_where(InOrder{x, low, high - low}, n, found);
}

// 1 - u from below: 31 bits, which convert as a signed number.
FS_DRAW_TARGET inline float distance_to_one(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(~word >> 1)) * 0x1p-31f;
}

struct LogitMayWin {
  const float* __restrict x;
  const uint32_t* __restrict words;
  float slope, shift;

  FS_DRAW_TARGET inline uint32_t test(int64_t i) const {
    float power = x[i] * slope + shift;
    power = power > -126.0f ? power : -126.0f;
    power = power < 100.0f ? power : 100.0f;
    // 2^n (1 + f) is above 2^(n + f).
    const int32_t bits = static_cast<int32_t>((power + 127.0f) * 0x1p23f);
    return distance_to_one(words[i]) <= bits_float(static_cast<uint32_t>(bits));
  }
};

struct WeightMayWin {
  const float* __restrict x;
  const uint32_t* __restrict words;
  float slope;

  FS_DRAW_TARGET inline uint32_t test(int64_t i) const {
    return distance_to_one(words[i]) <= x[i] * slope;
  }
};

FS_DRAW_TARGET int64_t candidates(const Bound& bound, const float* __restrict x,
                                  const uint32_t* __restrict words, int64_t n,
                                  int32_t* __restrict found) {
  return bound.numbers == Numbers::kLogits
             ? indices_where(LogitMayWin{x, words, bound.slope, bound.shift}, n, found)
             : indices_where(WeightMayWin{x, words, bound.slope}, n, found);
}

FS_DRAW_TARGET void masses(const float* __restrict x, int64_t n, float greatest, double temperature,
                           int64_t* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = token_mass(x[i], greatest, temperature);
  }
}

constexpr SamplingLoops kSamplingLoops{&orders, &select, &candidates, &masses};

}  // namespace
}  // namespace fastseed
