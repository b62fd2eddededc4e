// The loops of ExactLoops. The including file defines with FS_VECTOR also FS_MULTIPLY_ADD and
// FS_LOAD_FLOATS, the instructions of its vectors of float64.
//
// Each lane adds to two numbers of float64 whose last digits are worth fixed powers of two. The
// first one takes what an addition to it does not round away, the second one the rest: both
// additions are exact (the error-free transformation of Ogita, Rump and Oishi, 2005, on bins as in
// Demmel and Nguyen, 2015). Differences of bits from the start are integers.
#pragma once
#include <cstring>

#include "dispatch.h"

namespace fastseed {
namespace {

#if defined(FS_VECTOR)
constexpr int kExactBytes = sizeof(FS_VECTOR);
#else
constexpr int kExactBytes = 16;
#endif
typedef double Doubles __attribute__((vector_size(kExactBytes)));
typedef uint64_t DoubleBits __attribute__((vector_size(kExactBytes)));
constexpr int kExactWidth = kExactBytes / 8;
constexpr int kExactSide = kExactBytes == 64 ? 8 : 4;  // vectors side by side, by registers

#if !defined(FS_MULTIPLY_ADD)
#define FS_MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))  // products are exact here
#define FS_LOAD_FLOATS(at) \
  Doubles {                \
    (at)[0], (at)[1]       \
  }
#endif

FS_TARGET inline Doubles load_doubles(const float* at) {
  return FS_LOAD_FLOATS(at);
}
FS_TARGET inline Doubles load_doubles(const double* at) {
  Doubles found;
  std::memcpy(&found, at, sizeof(found));
  return found;
}

template <class T>
FS_TARGET inline Pattern<T> magnitude_of(T x) {
  return bits_of(x) & static_cast<Pattern<T>>(-1) >> 1;
}

template <class T>
FS_TARGET MagnitudeRange magnitudes(const T* __restrict x, int64_t n) {
  using Bits = Pattern<T>;
  Bits least = static_cast<Bits>(-1), greatest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Bits bits = magnitude_of(x[i]), before = bits - 1;  // of 0 it is the greatest
    greatest = bits > greatest ? bits : greatest;
    least = before < least ? before : least;
  }
  return MagnitudeRange{uint64_t{least} + 1, greatest};
}

template <class T, bool kSquares>
FS_TARGET void add_in_two(const T* __restrict x, int64_t n, double high, double low,
                          uint64_t* __restrict sums) {
  const Doubles one = Doubles{} + 1.0;  // CPUs multiply and add beside what they only add
  Doubles highs[kExactSide], lows[kExactSide];
  for (int k = 0; k < kExactSide; ++k) {
    highs[k] = Doubles{} + high;
    lows[k] = Doubles{} + low;
  }
  for (int64_t i = 0; i < n; i += kExactSide * kExactWidth) {
#pragma GCC unroll 8
    for (int k = 0; k < kExactSide; ++k) {
      const T* at = x + i + k * kExactWidth;
      __builtin_prefetch(at + kExactBlock);  // of the next block, whose first reader would wait
      const Doubles v = load_doubles(at), factor = kSquares ? v : one, before = highs[k];
      highs[k] = FS_MULTIPLY_ADD(v, factor, before);
      const Doubles taken = before - highs[k];
      lows[k] += FS_MULTIPLY_ADD(v, factor, taken);
    }
  }
  DoubleBits high_bits = {}, low_bits = {};
  for (int k = 0; k < kExactSide; ++k) {
    high_bits += reinterpret_cast<DoubleBits>(highs[k]);
    low_bits += reinterpret_cast<DoubleBits>(lows[k]);
  }
  constexpr uint64_t kLanes = kExactSide * kExactWidth;
  sums[0] = 0 - kLanes * bits_of(high);
  sums[1] = 0 - kLanes * bits_of(low);
  for (int j = 0; j < kExactWidth; ++j) {
    sums[0] += high_bits[j];
    sums[1] += low_bits[j];
  }
}

template <class T>
FS_TARGET int64_t part_small(const T* x, int64_t n, uint64_t floor, uint64_t ceiling,
                             T* __restrict within, T* small) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T value = x[i];
    const auto bits = magnitude_of(value);
    within[i] = bits >= floor && bits < ceiling ? value : T{0};
    small[count] = value;
    count += bits < floor && bits != 0;
  }
  return count;
}

template <class T>
FS_TARGET void widen(const T* __restrict x, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = to_float(x[i]);
  }
}

constexpr int exact_depth() {
  int depth = 0;
  while (kExactSide * kExactWidth << depth < kExactBlock) {
    ++depth;
  }
  return depth;
}

constexpr ExactLoops kExactLoops{
    exact_depth(),
    {&magnitudes<float>, &add_in_two<float, false>, &add_in_two<float, true>, &part_small<float>},
    {&magnitudes<double>, &add_in_two<double, false>, nullptr, &part_small<double>},
    &widen<Half>,
    &widen<BFloat16>};

}  // namespace
}  // namespace fastseed
