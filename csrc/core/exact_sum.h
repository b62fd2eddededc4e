// Sums without rounding: a fixed-point number that covers the whole range of float64, squares and
// products included (docs/spec/exact-sums.md). After Kulisch's long accumulator; limbs with room
// for carries as in Neal, "Fast exact summation using small and large superaccumulators", 2015.
// Pure integers: any order of any parts gives the same number.
#pragma once
#include <cstdint>
#include <vector>

#include "device.h"
#include "float16.h"

namespace fastseed {

// Limb i is worth 2^(32 i - 2176). Counts stand behind the limbs.
constexpr int kExactLimbs = 134;
constexpr int kExactFraction = 2176;
constexpr int kExactNan = kExactLimbs;
constexpr int kExactPositiveInfinity = kExactLimbs + 1;
constexpr int kExactNegativeInfinity = kExactLimbs + 2;
constexpr int kExactCount = kExactLimbs + 3;
constexpr int kExactSize = kExactLimbs + 4;

// A limb changes by less than 2^35 with each value; after so many limbs have to be carried.
constexpr int64_t kMostUncarried = int64_t{1} << 26;

// integer * 2^exponent is added: add(limb, part) three times, parts below 2^33. |integer| < 2^62.
template <class Add>
FS_HD void add_scaled(int64_t integer, int exponent, const Add& add) {
  const int at = exponent + kExactFraction, limb = at >> 5, shift = at & 31;
  const uint64_t low = (static_cast<uint64_t>(integer) & 0xffffffffu) << shift;
  const uint64_t high = static_cast<uint64_t>(integer >> 32) << shift;  // with its sign
  add(limb, static_cast<int64_t>(low & 0xffffffffu));
  add(limb + 1, static_cast<int64_t>((low >> 32) + (high & 0xffffffffu)));
  add(limb + 2, static_cast<int64_t>(high) >> 32);
}

// A finite number: (-1)^negative * significand * 2^exponent.
struct ExactParts {
  uint64_t significand;
  int exponent;
  bool negative;
};

FS_HD ExactParts exact_parts(double x) {
  const uint64_t bits = bits_of(x), fraction = bits & 0xfffffffffffffu;
  const int field = static_cast<int>(bits >> 52 & 0x7ffu);
  return ExactParts{field == 0 ? fraction : fraction | uint64_t{1} << 52,
                    (field == 0 ? 1 : field) - 1075, (bits >> 63) != 0};
}

FS_HD bool is_finite(double x) {
  return (bits_of(x) >> 52 & 0x7ffu) != 0x7ffu;
}

// Which count a value has that is not finite.
FS_HD int exact_kind(double x) {
  const uint64_t bits = bits_of(x);
  return (bits & 0xfffffffffffffu) != 0 ? kExactNan
         : bits >> 63 == 0              ? kExactPositiveInfinity
                                        : kExactNegativeInfinity;
}

template <class Add>
FS_HD void add_exactly(double x, const Add& add) {
  if (!is_finite(x)) {
    add(exact_kind(x), 1);
    return;
  }
  const ExactParts p = exact_parts(x);
  const int64_t integer = static_cast<int64_t>(p.significand);
  add_scaled(p.negative ? -integer : integer, p.exponent, add);
}

// The product of two numbers of 53 digits, as three of at most 55.
template <class Add>
FS_HD void add_product_exactly(double x, double y, const Add& add) {
  if (!is_finite(x) || !is_finite(y)) {
    add(exact_kind(x * y), 1);
    return;
  }
  const ExactParts p = exact_parts(x), q = exact_parts(y);
  const int64_t mask = (int64_t{1} << 27) - 1, sign = p.negative != q.negative ? -1 : 1;
  const int64_t a = static_cast<int64_t>(p.significand), b = static_cast<int64_t>(q.significand);
  const int exponent = p.exponent + q.exponent;
  add_scaled(sign * (a >> 27) * (b >> 27), exponent + 54, add);
  add_scaled(sign * ((a >> 27) * (b & mask) + (a & mask) * (b >> 27)), exponent + 27, add);
  add_scaled(sign * (a & mask) * (b & mask), exponent, add);
}

// Carries, so that all limbs but the last one are in [0, 2^32).
FS_HD void carry_exact(int64_t* total) {
  for (int i = 0; i + 1 < kExactLimbs; ++i) {
    total[i + 1] += total[i] >> 32;
    total[i] &= 0xffffffff;
  }
}

// n values of a sum, or their products with as many factors; those that are the values themselves
// give squares. All parts of a call have factors, or none.
template <class T>
struct ExactPart {
  const T* values;
  const T* factors;
  int64_t n;
};

// Adds the values of all parts, one part after the other, to `total`. On the CPU its limbs have to
// be carried before, and again when all ranges have been added; a device carries them.
template <class T>
void launch_exact_sum(const std::vector<ExactPart<T>>& parts, int64_t* total, Range part);
template <class T>
void launch_exact_sum(const std::vector<ExactPart<T>>& parts, int64_t* total, CudaStream cuda);

}  // namespace fastseed
