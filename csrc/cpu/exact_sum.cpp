// Cuts exact sums into blocks, and blocks into numbers whose magnitudes are close enough for the
// loops of this CPU.
#include "../core/exact_sum.h"

#include <algorithm>
#include <tuple>
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
struct BlockSum {
  const ExactLoopsOf<T>& loops;
  int depth;  // of the loops
  bool squares;
  int64_t* total;

  // n numbers, a multiple of kExactMultiple of at most kExactBlock.
  void add(const T* x, int64_t n) {
    alignas(64) T within[kExactBlock];
    alignas(64) T small[kExactBlock];
    while (n > 0) {
      const MagnitudeRange range = loops.magnitudes(x, n);
      if (range.greatest >= kInfinity) {
        count_not_finite(x, n);
        const int64_t padded =
            pad(small, loops.split_small(x, n, kInfinity, kInfinity, within, small));
        x = small;
        n = padded;
        continue;
      }
      if (range.greatest == 0) {
        return;
      }
      const int top = top_of(range.greatest);
      if (top < kLowestTop || top > kHighestTop) {
        add_one_by_one(x, n, total);
        return;
      }
      const uint64_t floor = floor_of(top);
      if (range.least >= floor) {
        add_close(x, n, top);
        return;
      }
      const int64_t left = loops.split_small(x, n, floor, kInfinity, within, small);
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
    return squares ? 2 * top : top;
  }

  // The least magnitude whose term is a multiple of the last digit of `low` in add_close.
  uint64_t floor_of(int top) const {
    const int digit = top + 2 * depth - 103;
    const int last = squares ? digit - (digit >> 1) : digit;  // rounded up
    return F::bits(int64_t{last} + F::kBias + F::kFraction);
  }

  // A lane's sum of 2^depth terms is below 2^(top + depth), and what `high` leaves of each is at
  // most half of its last digit.
  void add_close(const T* x, int64_t n, int top) const {
    const int high = top + depth + 1, low = high - 53 + depth + 1;
    uint64_t sums[2];
    (squares ? loops.squares : loops.values)(x, n, anchor(high), anchor(low), sums);
    add_scaled(static_cast<int64_t>(sums[0]), high - 52, add_to(total));
    add_scaled(static_cast<int64_t>(sums[1]), low - 52, add_to(total));
  }

  static double anchor(int exponent) {  // 1.5 * 2^exponent
    return bits_double(static_cast<uint64_t>(exponent + 1023) << 52 | uint64_t{1} << 51);
  }

  void count_not_finite(const T* x, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      const double value = static_cast<double>(x[i]);
      if (!is_finite(value)) {
        ++total[exact_kind(squares ? value * value : value)];
      }
    }
  }
};

// n numbers in blocks; convert(from, n, to) puts those that are not T into a buffer.
template <class T, class From, class Convert>
void add_blocks(const ExactLoopsOf<T>& loops, int depth, bool squares, const From* x, int64_t n,
                int64_t* total, const Convert& convert) {
  alignas(64) T buffer[kExactBlock];
  BlockSum<T> sum{loops, depth, squares, total};
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

template <class T>
void add_values(const T* x, bool squares, int64_t n, int64_t* total) {
  const ExactLoops& loops = cpu_path().exact;
  if constexpr (std::is_same_v<T, Half>) {
    add_blocks(loops.floats, loops.depth, squares, x, n, total, loops.halves);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    add_blocks(loops.floats, loops.depth, squares, x, n, total, loops.bfloats);
  } else {
    const auto& own = std::get<const ExactLoopsOf<T>&>(std::tie(loops.floats, loops.doubles));
    add_blocks(own, loops.depth, squares, x, n, total, std::copy_n<const T*, int64_t, T*>);
  }
}

// Values of a part, at most kMostUncarried.
template <class T>
void add_piece(const ExactPart<T>& piece, int64_t* total) {
  const bool squares = piece.factors == piece.values;
  if (piece.factors == nullptr || (squares && !std::is_same_v<T, double>)) {
    add_values(piece.values, squares, piece.n, total);
    return;
  }
  for (int64_t i = 0; i < piece.n; ++i) {
    add_product_exactly(static_cast<double>(to_real(piece.values[i])),
                        static_cast<double>(to_real(piece.factors[i])), add_to(total));
  }
}

}  // namespace

template <class T>
void launch_exact_sum(const std::vector<ExactPart<T>>& parts, int64_t* total, Range part) {
  int64_t own[kExactSize] = {};
  int64_t at = part.begin, left = part.size();
  for (const ExactPart<T>& p : parts) {
    while (at < p.n && left > 0) {
      const int64_t n = std::min({p.n - at, left, kMostUncarried});
      add_piece(ExactPart<T>{p.values + at, p.factors == nullptr ? nullptr : p.factors + at, n},
                own);
      carry_exact(own);
      at += n;
      left -= n;
    }
    at -= p.n;
  }
  own[kExactCount] = part.size();
  for (int i = 0; i < kExactSize; ++i) {
    __atomic_add_fetch(total + i, own[i], __ATOMIC_RELAXED);
  }
}

#define FS_INSTANTIATE(T) \
  template void launch_exact_sum<T>(const std::vector<ExactPart<T>>&, int64_t*, Range);
FS_EACH_REAL(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
