// The reals behind normal and exponential draws: -ln u, and the cosine and sine of a part of a
// turn, as polynomials. docs/spec/random.md is the specification; frozen like the derivation.
//
// Single multiplications, additions, divisions and square roots, each rounded once, in the order
// written: so the bits are those of any IEEE 754 machine. That needs -ffp-contract=off on the host
// and -fmad=false on the device: without it nvcc writes products as plain `mul.f32`, which may be
// fused. tests/csrc/cuda_check inspects PTX and machine code.
#pragma once
#include <cmath>
#include <cstdint>

#include "float16.h"
#include "macros.h"

namespace fastseed {

#if defined(__CUDA_ARCH__)
FS_HD float mul(float a, float b) {
  return __fmul_rn(a, b);
}
FS_HD float add(float a, float b) {
  return __fadd_rn(a, b);
}
FS_HD float divide(float a, float b) {
  return __fdiv_rn(a, b);
}
FS_HD float square_root(float a) {
  return __fsqrt_rn(a);
}
FS_HD double mul(double a, double b) {
  return __dmul_rn(a, b);
}
FS_HD double add(double a, double b) {
  return __dadd_rn(a, b);
}
FS_HD double divide(double a, double b) {
  return __ddiv_rn(a, b);
}
FS_HD double square_root(double a) {
  return __dsqrt_rn(a);
}
FS_HD int leading_zeros(uint32_t x) {
  return __clz(static_cast<int>(x));
}
FS_HD int leading_zeros(uint64_t x) {
  return __clzll(static_cast<long long>(x));
}
template <class T>
FS_HD double to_double(T x) {
  return static_cast<double>(x);
}
#else
template <class T>
FS_HD T mul(T a, T b) {
  return a * b;
}
template <class T>
FS_HD T add(T a, T b) {
  return a + b;
}
template <class T>
FS_HD T divide(T a, T b) {
  return a / b;
}
template <class T>
FS_HD T square_root(T a) {
  return std::sqrt(a);
}
// Of x > 0; written so that compilers turn a loop of it into vector code. Half of x's top bit, with
// those of the lower ones that rounding cannot carry, is converted: the exponent is its place.
FS_HD int leading_zeros(uint32_t x) {
  const int32_t top = static_cast<int32_t>((x & ~(x >> 1)) >> 1);
  return x == 1u ? 31 : 157 - static_cast<int>(bits_of(static_cast<float>(top)) >> 23);
}
// x rounded once. By halves, as numbers above 2^84 and 2^52: few CPUs convert vectors of 64 bits.
FS_HD double to_double(int64_t x) {
  const uint64_t bits = static_cast<uint64_t>(x) ^ 0x8000000000000000u;
  const double high = bits_double(0x4530000000000000u | bits >> 32) - 0x1.00000801p84;
  return high + bits_double(0x4330000000000000u | (bits & 0xffffffffu));
}
FS_HD int64_t leading_zeros(uint64_t x) {  // of x > 0, the same way
  const int64_t top = static_cast<int64_t>((x & ~(x >> 1)) >> 1);
  return x == 1u ? 63 : 1085 - static_cast<int64_t>(bits_of(to_double(top)) >> 52);
}
#endif

// Horner's rule, lowest power first.
template <class T, int kCount>
FS_HD T polynomial(const T (&c)[kCount], T x) {
  T value = c[kCount - 1];
  for (int i = kCount - 2; i >= 0; --i) {
    value = add(mul(value, x), c[i]);
  }
  return value;
}

// -ln of 2^-k (1 + r), 1 + r from sqrt(1/2) to sqrt(2).
FS_HD float negative_log(float r, float k) {
  constexpr float kLog[] = {0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a00ap-3f, -0x1.547246p-3f,
                            0x1.22da06p-3f, -0x1.0d851ap-3f, 0x1.055be8p-3f, -0x1.38b75cp-4f};
  const float square = mul(r, r);
  float y = mul(mul(polynomial(kLog, r), r), square);
  y = add(y, mul(k, 0x1.bd0106p-13f));
  y = add(y, mul(-0.5f, square));
  return add(mul(k, 0x1.63p-1f), -add(r, y));
}

// -ln u of u = (w | 1) / 2^32: in [2^-32, 22.2), never 0.
FS_HD float negative_log(uint32_t w) {
  const uint32_t x = w | 1u;
  const int shift = leading_zeros(x);
  const uint32_t mantissa = x << shift;
  const bool big = mantissa >= 0xB504F334u;  // sqrt(2) 2^31: u = 2^-k (1 + r), |r| < 0.415
  const int32_t signed_r = static_cast<int32_t>(big ? mantissa : mantissa ^ 0x80000000u);
  const float r = mul(static_cast<float>(signed_r), big ? 0x1p-32f : 0x1p-31f);
  return negative_log(r, static_cast<float>(big ? shift : shift + 1));
}

// -ln t of a normal number t above 0.
FS_HD float negative_log(float t) {
  constexpr uint32_t kRootHalf = 0x3f3504f4u;  // the bits of the least number above sqrt(1/2)
  const uint32_t x = bits_of(t) + (0x3f800000u - kRootHalf);
  const float scaled = bits_float((x & 0x007fffffu) + kRootHalf);
  return negative_log(add(scaled, -1.0f), static_cast<float>(127 - static_cast<int32_t>(x >> 23)));
}

FS_HD double negative_log(double r, double k) {
  constexpr double kLog[] = {0x1.5555555555592p-1, 0x1.999999997fdb7p-2, 0x1.24924941f126bp-2,
                             0x1.c71c52095c72bp-3, 0x1.74663ee86a1b3p-3, 0x1.39a1babb1677bp-3,
                             0x1.2f05634234922p-3};
  const double half = mul(0.5, mul(r, r));
  const double s = divide(r, add(2.0, r));  // ln(1 + r) = 2 artanh(s)
  const double z = mul(s, s);
  double y = mul(s, add(half, mul(polynomial(kLog, z), z)));
  y = add(y, mul(k, -0x1.9ef35793c7673p-41));
  y = add(y, -half);
  return add(mul(k, 0x1.62e42fefa2000p-1), -add(r, y));
}

// -ln u of u = (a | 1) / 2^64.
FS_HD double negative_log(uint64_t a) {
  const uint64_t x = a | 1u;
  const auto shift = leading_zeros(x);
  const uint64_t mantissa = x << shift;
  const bool big = mantissa >= 0xB504F333F9DE6485u;
  const int64_t signed_r =
      static_cast<int64_t>(big ? mantissa : mantissa ^ uint64_t{0x8000000000000000u});
  const double r = mul(to_double(signed_r), big ? 0x1p-64 : 0x1p-63);
  return negative_log(r, to_double(big ? shift : shift + 1));
}

FS_HD double negative_log(double t) {
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcdu;
  const uint64_t x = bits_of(t) + (0x3ff0000000000000u - kRootHalf);
  const double scaled = bits_double((x & 0x000fffffffffffffu) + kRootHalf);
  return negative_log(add(scaled, -1.0), to_double(1023 - static_cast<int64_t>(x >> 52)));
}

template <class T>
struct CosSin {
  T cos, sin;
};

// Of (quadrant + t) quarter turns, from cosine c and sine s of t quarter turns.
template <class T, class Word>
FS_HD CosSin<T> turn(Word quadrant, T c, T s) {
  const bool odd = (quadrant & 1u) != 0;
  const T x = odd ? s : c;
  const T y = odd ? c : s;
  return {((quadrant + 1u) & 2u) != 0 ? -x : x, (quadrant & 2u) != 0 ? -y : y};
}

// Of 2 pi (n + 1/2) / 2^26, n the top 26 bits of w.
FS_HD CosSin<float> cos_sin(uint32_t w) {
  constexpr float kSin[] = {0x1.243f6ap-1f, -0x1.4abbbap-1f, 0x1.465e92p-4f, -0x1.2d9302p-8f};
  constexpr float kCos[] = {-0x1.3bd3ccp+0f, 0x1.03c1dep-2f, -0x1.55c5e0p-6f, 0x1.d9d57ep-11f};
  const uint32_t quadrant = (w + (1u << 29)) >> 30;
  const int32_t bits = static_cast<int32_t>(((w << 2) & 0xFFFFFF00u) | 0x80u);
  const float t = mul(static_cast<float>(bits), 0x1p-32f);  // exact, |t| < 1/2
  const float z = mul(t, t);
  return turn(quadrant, add(mul(polynomial(kCos, z), z), 1.0f),
              add(mul(polynomial(kSin, z), t), t));
}

// Of 2 pi (n + 1/2) / 2^55, n the top 55 bits of b.
FS_HD CosSin<double> cos_sin(uint64_t b) {
  constexpr double kSin[] = {0x1.243f6a8885a31p-1,  -0x1.4abbce625be41p-1, 0x1.466bc67758700p-4,
                             -0x1.32d2cce2d5364p-8, 0x1.50782fca38ef1p-13, -0x1.e30063a054e91p-19,
                             0x1.e3eed5da55fe9p-25};
  constexpr double kCos[] = {-0x1.3bd3cc9be45dep+0, 0x1.03c1f081b5aaep-2,   -0x1.55d3c7e3c9280p-6,
                             0x1.e1f5068367b35p-11, -0x1.a6d1ec7e0c7f7p-16, 0x1.f9cc40ad5d0d8p-22,
                             -0x1.b263c37c57573p-28};
  const uint64_t quadrant = (b + (uint64_t{1} << 61)) >> 62;
  const int64_t bits = static_cast<int64_t>(((b << 2) & ~uint64_t{0x7FF}) | 0x400u);
  const double t = mul(to_double(bits), 0x1p-64);
  const double z = mul(t, t);
  return turn(quadrant, add(mul(polynomial(kCos, z), z), 1.0), add(mul(polynomial(kSin, z), t), t));
}

}  // namespace fastseed
