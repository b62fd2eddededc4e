// Reals as bit patterns, and rounding to those of 16 bits (to nearest, ties to even). No library
// type: the same few lines serve hosts and devices that know none.
#pragma once
#include <cstdint>
#include <cstring>

#include "macros.h"

namespace fastseed {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

FS_HD uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
#endif
}

FS_HD float bits_float(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
#endif
}

FS_HD uint64_t double_bits(double x) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint64_t>(__double_as_longlong(x));
#else
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
#endif
}

FS_HD double bits_double(uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __longlong_as_double(static_cast<long long>(bits));
#else
  double x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
#endif
}

// x is finite, or infinite; never NaN.
FS_HD Half to_half(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return Half{bits};
#else
  // All three ranges are computed and one is taken: a loop of it has no branch.
  const uint32_t sign = float_bits(x) >> 16 & 0x8000u;
  const uint32_t magnitude = float_bits(x) & 0x7fffffffu;
  // Below 2^-14 the spacing is 2^-24: an addition rounds.
  const uint32_t small = float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u;
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
  const uint32_t bits = float_bits(x);
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
  const uint32_t small = float_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x400u ? small : normal;
  const uint32_t bits = magnitude >= 0x7c00u ? magnitude << 13 | 0x7f800000u : finite;
  return bits_float(bits | (x.bits & 0x8000u) << 16);
}

// A float as a value of type T, rounded once.
template <class T>
struct Rounded;

template <>
struct Rounded<float> {
  FS_HD static float of(float x) {
    return x;
  }
};

template <>
struct Rounded<Half> {
  FS_HD static Half of(float x) {
    return to_half(x);
  }
};

template <>
struct Rounded<BFloat16> {
  FS_HD static BFloat16 of(float x) {
    return to_bfloat16(x);
  }
};

template <>
struct Rounded<double> {
  FS_HD static double of(double x) {
    return x;
  }
};

}  // namespace fastseed
