// Normal and exponential draws in float32 (and 16 bits) with the bits of core/fp_math.h and fewer
// instructions: a GPU is bound by them here, not by memory.
//
// What differs, and why no bit does:
// - A fused multiply-add stands where the product is exact: by a power of two, or of a number of
//   places below 33 with the 9 bits of the upper part of ln 2.
// - The logarithm comes out doubled, as the square root takes it: all of it scales by two.
// - The square root is two Newton steps from the hardware's approximate inverse. It is correctly
//   rounded whatever that is, within 64 ulp (tests/csrc/cuda_real_checks.cpp tries them); the test
//   for zeros, infinities and NaN, which do not occur here, is what is saved.
// - The place in a quarter turn, the quadrant's parity and its half turn are read from one sum.
#pragma once
#include "../kernels/draws.h"
#include "device.cuh"

namespace fastseed {

// How many places to shift x so that its top bit is set. x is not 0.
FS_DEVICE uint32_t shift_amount(uint32_t x) {
#if defined(__CUDA_ARCH__)
  uint32_t places;
  asm("bfind.shiftamt.u32 %0, %1;" : "=r"(places) : "r"(x));
  return places;
#else
  return static_cast<uint32_t>(leading_zeros(x));
#endif
}

// About 1 / sqrt(x) for a normal x: within 2.2 ulp, says the manual of PTX.
FS_DEVICE float inverse_root(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
#endif
}

// sqrt(x) correctly rounded, from `inverse` as above; x in [2^-60, 2^60]. One step would do for the
// approximations of today's GPUs, as in their compiler's own sequence; with two, it does for any.
FS_DEVICE float root_from(float x, float inverse) {
  const float root = mul(x, inverse);
  const float half = mul(0.5f, inverse);
  const float error = __fmaf_rn(-half, root, 0.5f);
  const float closer = __fmaf_rn(root, error, root);
  return __fmaf_rn(__fmaf_rn(-closer, closer, x), __fmaf_rn(half, error, half), closer);
}

// A number below sqrt(2) loses its top bit to one more place: so r doubles its scale.
FS_DEVICE void shift_out_top_bit(uint32_t& mantissa, uint32_t& places) {
#if defined(__CUDA_ARCH__)
  asm("{\n\t.reg .pred small;\n\tsetp.lt.u32 small, %0, 0xB504F334;\n\t"
      "@small add.u32 %0, %0, %0;\n\t@small add.u32 %1, %1, 1;\n\t}"
      : "+r"(mantissa), "+r"(places));
#else
  if (mantissa < 0xB504F334u) {
    mantissa += mantissa;
    ++places;
  }
#endif
}

// kTimes (1 or 2) times negative_log(w).
template <int kTimes>
FS_DEVICE float scaled_negative_log(uint32_t w) {
  constexpr float kScale = static_cast<float>(kTimes);
  constexpr float kLog[] = {kScale * 0x1.555554p-2f, kScale * -0x1.000226p-2f,
                            kScale * 0x1.99a00ap-3f, kScale * -0x1.547246p-3f,
                            kScale * 0x1.22da06p-3f, kScale * -0x1.0d851ap-3f,
                            kScale * 0x1.055be8p-3f, kScale * -0x1.38b75cp-4f};
  const uint32_t x = w | 1u;
  uint32_t places = shift_amount(x);
  uint32_t mantissa = x << places;
  shift_out_top_bit(mantissa, places);
  const float r = mul(static_cast<float>(static_cast<int32_t>(mantissa)), 0x1p-32f);
  const float k = static_cast<float>(static_cast<int32_t>(places));
  const float square = mul(r, r);
  float y = mul(mul(polynomial(kLog, r), r), square);
  y = add(y, mul(k, kScale * 0x1.bd0106p-13f));
  y = __fmaf_rn(square, -0.5f * kScale, y);
  return __fmaf_rn(k, kScale * 0x1.63p-1f, -__fmaf_rn(r, kScale, y));
}

// (c, s), or (-s, c) where bit 30 of u is set. Spelled out, because the compiler makes three
// instructions of the test for a bit.
FS_DEVICE CosSin<float> quarter_turn(uint32_t u, float c, float s) {
#if defined(__CUDA_ARCH__)
  CosSin<float> turned;
  asm("{\n\t.reg .pred odd;\n\t.reg .b32 bit;\n\t"
      "and.b32 bit, %4, 0x40000000;\n\tsetp.ne.u32 odd, bit, 0;\n\t"
      "selp.f32 %0, %5, %2, odd;\n\tselp.f32 %1, %2, %3, odd;\n\t}"
      : "=&f"(turned.cos), "=f"(turned.sin)
      : "f"(c), "f"(s), "r"(u), "f"(-s));
  return turned;
#else
  return (u & 0x40000000u) != 0 ? CosSin<float>{-s, c} : CosSin<float>{c, s};
#endif
}

// radius times cos_sin(w): the half turn goes into the sign of the radius.
FS_DEVICE CosSin<float> on_circle(float radius, uint32_t w) {
  constexpr float kSin[] = {0x1.243f6ap-1f, -0x1.4abbbap-1f, 0x1.465e92p-4f, -0x1.2d9302p-8f};
  constexpr float kCos[] = {-0x1.3bd3ccp+0f, 0x1.03c1dep-2f, -0x1.55c5e0p-6f, 0x1.d9d57ep-11f};
  const uint32_t u = w + (1u << 29);  // the quadrant in two bits, then t + 1/2 in 30
  const float place = static_cast<float>(static_cast<int32_t>(u & 0x3FFFFFC0u));
  const float t = __fmaf_rn(place, 0x1p-30f, -0x1.fffffep-2f);
  const float z = mul(t, t);
  const float c = add(mul(polynomial(kCos, z), z), 1.0f);
  const float s = add(mul(polynomial(kSin, z), t), t);
  const CosSin<float> turned = quarter_turn(u, c, s);
  const float signed_radius = bits_float(float_bits(radius) ^ (u & 0x80000000u));
  return {mul(signed_radius, turned.cos), mul(signed_radius, turned.sin)};
}

// The values of a block, as D's own operator gives them.
template <class D>
struct OnDevice {
  template <class Values>
  FS_DEVICE static void values(const D& distribution, const Drawn& drawn, Values& out) {
    distribution(drawn, out);
  }
};

template <class T>
struct FastNormal {
  FS_DEVICE static void values(const Normal<T>& normal, const Drawn& drawn, T (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float square = scaled_negative_log<2>(drawn.words.w[i]);
      const float radius = root_from(square, inverse_root(square));
      const CosSin<float> z = on_circle(radius, drawn.words.w[i + 1]);
      out[i] = Rounded<T>::of(add(mul(z.cos, normal.std), normal.mean));
      out[i + 1] = Rounded<T>::of(add(mul(z.sin, normal.std), normal.mean));
    }
  }
};

template <class T>
struct FastExponential {
  FS_DEVICE static void values(const Exponential<T>& exponential, const Drawn& drawn, T (&out)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[i] = Rounded<T>::of(mul(scaled_negative_log<1>(drawn.words.w[i]), exponential.scale));
    }
  }
};

template <>
struct OnDevice<Normal<float>> : FastNormal<float> {};
template <>
struct OnDevice<Normal<Half>> : FastNormal<Half> {};
template <>
struct OnDevice<Normal<BFloat16>> : FastNormal<BFloat16> {};
template <>
struct OnDevice<Exponential<float>> : FastExponential<float> {};
template <>
struct OnDevice<Exponential<Half>> : FastExponential<Half> {};
template <>
struct OnDevice<Exponential<BFloat16>> : FastExponential<BFloat16> {};

}  // namespace fastseed
