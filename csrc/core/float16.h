// Reals as bit patterns, and rounding to those of 16 bits (to nearest, ties to even). No library
// type: the same few lines serve hosts and devices that know none.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "macros.h"

namespace fastseed {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

template <class To, class From>
FS_HD To same_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "all bits, and no others");
  To y;
  std::memcpy(&y, &x, sizeof(x));
  return y;
}

// The unsigned integer as large as a T.
template <class T>
using Pattern =
    std::conditional_t<sizeof(T) == 8, uint64_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t,
                                          std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <class T>
FS_HD Pattern<T> bits_of(T x) {
  return same_bits<Pattern<T>>(x);
}
FS_HD float bits_float(uint32_t bits) {
  return same_bits<float>(bits);
}
FS_HD double bits_double(uint64_t bits) {
  return same_bits<double>(bits);
}

// x is finite, or infinite; never NaN.
FS_HD Half to_half(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return Half{bits};
#else
  // All three ranges are computed and one is taken: a loop of it has no branch.
  const uint32_t sign = bits_of(x) >> 16 & 0x8000u;
  const uint32_t magnitude = bits_of(x) & 0x7fffffffu;
  // Below 2^-14 the spacing is 2^-24: an addition rounds.
  const uint32_t small = bits_of(bits_float(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t even = magnitude >> 13 & 1u;
  const uint32_t normal =
      ((magnitude + 0xfffu + even) >> 13) - (112u << 10);  // may carry to infinity
  const uint32_t finite = magnitude < 0x38800000u ? small : normal;
  return Half{static_cast<uint16_t>(sign | (magnitude >= 0x47800000u ? 0x7c00u : finite))};
#endif
}

FS_HD BFloat16 to_bfloat16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return BFloat16{bits};
#else
  const uint32_t bits = bits_of(x);
  return BFloat16{static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
#endif
}

FS_HD float to_float(float x) {
  return x;
}

FS_HD float to_float(BFloat16 x) {
  return bits_float(static_cast<uint32_t>(x.bits) << 16);
}

// In integers: devices would convert by an addition in half precision.
FS_HD float to_float(Half x) {
  // All three ranges, as above.
  const uint32_t magnitude = x.bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t small = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x400u ? small : normal;
  const uint32_t bits = magnitude >= 0x7c00u ? magnitude << 13 | 0x7f800000u : finite;
  return bits_float(bits | (x.bits & 0x8000u) << 16);
}

// What numbers of type T are computed in.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

FS_HD double to_real(double x) {
  return x;
}
template <class T>
FS_HD float to_real(T x) {
  return to_float(x);
}

// A real as a value of type T, rounded once.
template <class T>
FS_HD T rounded(RealOf<T> x) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(x);
  } else {
    return x;
  }
}

// The types of reals that there are loops and kernels for.
#define FS_EACH_REAL(apply) apply(float) apply(double) apply(Half) apply(BFloat16)

}  // namespace fastseed
