// Cuts exact sums into blocks, and blocks into numbers whose magnitudes are close enough for the
// loops of this CPU.
#include "../core/exact_sum.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "dispatch.h"

namespace fastseed {
namespace {

// How floating-point numbers lie in their bits.
template <class T>
struct Format {
  static constexpr int kFraction = sizeof(T) == 4 ? 23 : 52;
  static constexpr int kBias = sizeof(T) == 4 ? 127 : 1023;

  static int field(uint64_t bits) {
    return static_cast<int>(std::max<uint64_t>(bits >> kFraction, 1));
  }
  static uint64_t bits(int64_t field) {  // of the least number with this exponent
    return field <= 0 ? 1 : static_cast<uint64_t>(field) << kFraction;
  }
};

// Between these, anchors and last digits of the loops are normal numbers of float64.
constexpr int kLowestTop = -900;
constexpr int kHighestTop = 1000;

auto add_to(int64_t* total) {
  return [total](int limb, int64_t part) { total[limb] += part; };
}

template <class T>
void add_one_by_one(const T* x, int64_t n, int64_t* total) {
  for (int64_t i = 0; i < n; ++i) {
    add_exactly(static_cast<double>(x[i]), add_to(total));
  }
}

template <class T>
class BlockSum {
 public:
  BlockSum(const ExactLoopsOf<T>& loops, int depth, bool squares, int64_t* total)
      : loops_(loops), depth_(depth), squares_(squares), total_(total) {}

  // n numbers, a multiple of kExactMultiple of at most kExactBlock.
  void add(const T* x, int64_t n) {
    alignas(64) T within[kExactBlock];
    alignas(64) T small[kExactBlock];
    while (n > 0) {
      const MagnitudeRange range = loops_.magnitudes(x, n);
      if (range.greatest >= kInfinity) {
        count_not_finite(x, n);
        const int64_t padded =
            pad(small, loops_.split_small(x, n, kInfinity, kInfinity, within, small));
        x = small;
        n = padded;
        continue;
      }
      if (range.greatest == 0) {
        return;
      }
      const int top = top_of(range.greatest);
      if (top < kLowestTop || top > kHighestTop) {
        add_one_by_one(x, n, total_);
        return;
      }
      const uint64_t floor = floor_of(top);
      if (range.least >= floor) {
        add_close(x, n, top);
        return;
      }
      const int64_t left = loops_.split_small(x, n, floor, kInfinity, within, small);
      add_close(within, n, top);
      n = pad(small, left);
      x = small;
    }
  }

  static int64_t pad(T* x, int64_t n) {
    const int64_t padded = (n + kExactMultiple - 1) / kExactMultiple * kExactMultiple;
    std::fill(x + n, x + padded, T{0});
    return padded;
  }

 private:
  using F = Format<T>;
  static constexpr uint64_t kInfinity = uint64_t{2 * F::kBias + 1} << F::kFraction;

  // All terms are below 2^top.
  int top_of(uint64_t greatest) const {
    const int top = F::field(greatest) - F::kBias + 1;
    return squares_ ? 2 * top : top;
  }

  // The least magnitude whose term is a multiple of the last digit of `low` in add_close.
  uint64_t floor_of(int top) const {
    const int digit = top + 2 * depth_ - 103;
    const int last = squares_ ? digit - (digit >> 1) : digit;  // rounded up
    return F::bits(int64_t{last} + F::kBias + F::kFraction);
  }

  // A lane's sum of 2^depth terms is below 2^(top + depth), and what `high` leaves of each is at
  // most half of its last digit.
  void add_close(const T* x, int64_t n, int top) const {
    const int high = top + depth_ + 1, low = high - 53 + depth_ + 1;
    uint64_t sums[2];
    (squares_ ? loops_.squares : loops_.values)(x, n, anchor(high), anchor(low), sums);
    add_scaled(static_cast<int64_t>(sums[0]), high - 52, add_to(total_));
    add_scaled(static_cast<int64_t>(sums[1]), low - 52, add_to(total_));
  }

  static double anchor(int exponent) {  // 1.5 * 2^exponent
    return bits_double(static_cast<uint64_t>(exponent + 1023) << 52 | uint64_t{1} << 51);
  }

  void count_not_finite(const T* x, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      const double value = static_cast<double>(x[i]);
      if (!is_finite(value)) {
        ++total_[exact_kind(squares_ ? value * value : value)];
      }
    }
  }

  const ExactLoopsOf<T>& loops_;
  int depth_;
  bool squares_;
  int64_t* total_;
};

// n numbers in blocks; convert(from, n, to) puts those that are not T into a buffer.
template <class T, class From, class Convert>
void add_blocks(const ExactLoopsOf<T>& loops, int depth, bool squares, const From* x, int64_t n,
                int64_t* total, const Convert& convert) {
  alignas(64) T buffer[kExactBlock];
  BlockSum<T> sum(loops, depth, squares, total);
  for (int64_t at = 0; at < n; at += kExactBlock) {
    const int64_t size = std::min(n - at, kExactBlock);
    if constexpr (std::is_same_v<T, From>) {
      if (size % kExactMultiple == 0) {
        sum.add(x + at, size);
        continue;
      }
    }
    convert(x + at, size, buffer);
    sum.add(buffer, BlockSum<T>::pad(buffer, size));
  }
}

void add_piece(const float* x, bool squares, int64_t n, int64_t* total) {
  const ExactLoops& loops = cpu_path().exact;
  add_blocks(loops.floats, loops.depth, squares, x, n, total,
             [](const float* from, int64_t size, float* to) { std::copy_n(from, size, to); });
}
void add_piece(const double* x, bool squares, int64_t n, int64_t* total) {
  const ExactLoops& loops = cpu_path().exact;
  if (squares) {
    for (int64_t i = 0; i < n; ++i) {
      add_product_exactly(x[i], x[i], add_to(total));
    }
    return;
  }
  add_blocks(loops.doubles, loops.depth, false, x, n, total,
             [](const double* from, int64_t size, double* to) { std::copy_n(from, size, to); });
}
void add_piece(const Half* x, bool squares, int64_t n, int64_t* total) {
  const ExactLoops& loops = cpu_path().exact;
  add_blocks(loops.floats, loops.depth, squares, x, n, total, loops.halves);
}
void add_piece(const BFloat16* x, bool squares, int64_t n, int64_t* total) {
  const ExactLoops& loops = cpu_path().exact;
  add_blocks(loops.floats, loops.depth, squares, x, n, total, loops.bfloats);
}

double to_double(double x) {
  return x;
}
template <class T>
double to_double(T x) {
  return static_cast<double>(to_float(x));
}

}  // namespace

template <class T>
void launch_exact_sum(const T* values, const T* factors, int64_t n, int64_t* total) {
  total[kExactCount] += n;
  for (int64_t at = 0; at < n; at += kMostUncarried) {
    const int64_t size = std::min(n - at, kMostUncarried);
    if (factors == nullptr || factors == values) {
      add_piece(values + at, factors != nullptr, size, total);
    } else {
      for (int64_t i = at; i < at + size; ++i) {
        add_product_exactly(to_double(values[i]), to_double(factors[i]), add_to(total));
      }
    }
    carry_exact(total);
  }
}

#define FS_INSTANTIATE(T) template void launch_exact_sum<T>(const T*, const T*, int64_t, int64_t*);
FS_EACH_EXACT(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
