// Exact sums on CUDA devices. A thread adds what lies close together to integers of 128 bits in
// registers, those of a warp are added, then those of a block in its shared memory, and the block
// adds the limbs that are not 0 to the total. Whoever adds, and in what order, changes no bit.
#include "../core/exact_sum.h"
#include "device.cuh"
#include "store.cuh"

namespace fastseed {
namespace {

enum class Terms { kValues, kSquares, kProducts };

template <class T>
constexpr int kVectors = sizeof(T) == 2 ? 1 : 2;  // loads of 16 bytes of a thread in a tile
template <class T>
constexpr int64_t kTile = kVectors<T> * kVectorBytes / static_cast<int>(sizeof(T)) * kThreads;

template <class T>
FS_HD int64_t tiles_of(int64_t n) {
  return (n + kTile<T> - 1) / kTile<T>;
}

// How a number is laid out: sign, exponent field, fraction.
template <class T>
constexpr int kFraction = sizeof(T) == 8   ? 52
                          : sizeof(T) == 4 ? 23
                                           : 10;
template <>
constexpr int kFraction<BFloat16> = 7;

// Parts of a launch, with factors for all of them or none.
constexpr int kMostParts = 32;
template <class T>
struct ExactTable {
  int count;
  const T* values[kMostParts];
  const T* factors[kMostParts];
  int64_t sizes[kMostParts];
};

FS_DEVICE bool any_of_warp(bool mine) {
#if defined(__CUDA_ARCH__)
  return __any_sync(0xffffffffu, mine) != 0;
#else
  return mine;
#endif
}

// An integer of 128 bits.
struct Window {
  uint64_t low, high;

  FS_DEVICE void add(int64_t integer, int shift) {  // in [0, 63]
    const uint64_t part = static_cast<uint64_t>(integer) << shift;
    low += part;
    high += static_cast<uint64_t>((integer >> 1) >> (63 - shift)) + (low < part ? 1 : 0);
  }

  // This * 2^exponent of all threads of a warp is added, by five limbs, and is 0 then. A host has
  // no warps: its threads add for themselves.
  template <class Sums>
  FS_DEVICE void flush(Sums& sums, int exponent, uint32_t thread) {
    if (!any_of_warp((low | high) != 0)) {
      return;
    }
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const uint64_t other = __shfl_xor_sync(0xffffffffu, low, lanes);
      high += __shfl_xor_sync(0xffffffffu, high, lanes);
      low += other;
      high += low < other ? 1 : 0;
    }
#else
    thread = 0;
#endif
    if (thread % 32 == 0) {
      const int at = exponent + kExactFraction, limb = at >> 5, shift = at & 31;
      const uint64_t first = low << shift, second = high << shift | low >> 1 >> (63 - shift);
      const int64_t third = static_cast<int64_t>(high) >> 1 >> (63 - shift);
      sums.add(limb, first & 0xffffffffu);
      sums.add(limb + 1, first >> 32);
      sums.add(limb + 2, second & 0xffffffffu);
      sums.add(limb + 3, second >> 32);
      sums.add(limb + 4, static_cast<uint64_t>(third));
    }
    low = high = 0;
  }
};

FS_DEVICE int most_of_warp(int mine) {
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, mine, lanes);
    mine = other > mine ? other : mine;
  }
#endif
  return mine;
}

template <class T, Terms kTerms>
struct ExactTiles {
  using Bits = Pattern<T>;
  using Sums = SharedSums<kExactCount>;  // limbs, and counts of what is not finite
  static constexpr int kNumbers = kVectorBytes / static_cast<int>(sizeof(T));
  static constexpr int kEach = kVectors<T> * kNumbers;
  static constexpr int kTimes = kTerms == Terms::kValues ? 1 : 2;
  // The integer of a term, of at most 55 bits: a product of two doubles has three, 27 bits apart.
  static constexpr int kParts = kTimes * kFraction<T> > 55 ? 3 : 1;
  static constexpr int kMinBlocks = kParts == 3 || kTerms == Terms::kProducts ? 3 : 4;
  static constexpr int kDigits = kParts == 3 ? 55 : kTimes * (kFraction<T> + 1);
  // Exponent fields, or their sums, are at most kMost where finite. A term of field f is its
  // integer times 2^(f - kOffset).
  static constexpr int kFields = (1 << (8 * static_cast<int>(sizeof(T)) - 1 - kFraction<T>)) - 1;
  static constexpr int kMost = kTimes * (kFields - 1);
  static constexpr int kOffset = kTimes * (kFields / 2 + kFraction<T>);
  // Fields above its base that a window takes. A warp adds at most an eighth of kMostUncarried
  // terms, and 127 bits hold their sum.
  static constexpr int kFull = 127 - 23 - kDigits < 63 ? 127 - 23 - kDigits : 63;
  static constexpr int kReach = kFull < kMost - 1 ? kFull : kMost - 1;
  static constexpr int kAbove = 10;  // fields above the greatest when a base is chosen
  ExactTable<T> parts;
  int64_t tiles;
  int64_t* total;

  struct Term {
    int64_t integers[kParts];
  };

  // What a thread adds to: fields from `base` on, of the same base in all threads of a warp, and
  // those below it.
  struct Windows {
    Window near[kParts], far[kParts];
    int base;

    FS_DEVICE int far_base() const {
      return base > kReach + 1 ? base - kReach - 1 : 1;
    }

    FS_DEVICE void add(Window (&to)[kParts], const Term& term, int shift) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        to[i].add(term.integers[i], shift);
      }
    }

    FS_DEVICE void flush(Sums& sums, uint32_t thread) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        near[i].flush(sums, base - kOffset + 27 * i, thread);
        far[i].flush(sums, far_base() - kOffset + 27 * i, thread);
      }
    }
  };

  FS_DEVICE void operator()(ThreadIndex at) const {
    __shared__ Sums sums;
    sums.clear(at.thread);
    Windows windows = {};
    windows.base = 1;
    int64_t begin = first_of_share(tiles, at.block, at.blocks);
    int64_t end = first_of_share(tiles, at.block + 1, at.blocks);
    for (int i = 0; begin < end; ++i) {
      const int64_t n = parts.sizes[i], all = tiles_of<T>(n);
      const T* values = parts.values[i];
      const T* factors = kTerms == Terms::kProducts ? parts.factors[i] : values;
      const bool aligned = is_aligned(values, kVectorBytes) && is_aligned(factors, kVectorBytes);
#pragma unroll 1
      for (; begin < end && begin < all; ++begin) {
        const int64_t first = begin * kTile<T> + int64_t{at.thread} * kNumbers;
        Bits x[kEach], y[kEach];
        const bool whole = aligned && (begin + 1) * kTile<T> <= n;
        load_numbers(values, first, n, whole, x);
        if (kTerms == Terms::kProducts) {
          load_numbers(factors, first, n, whole, y);
        }
        add_tile(windows, sums, x, kTerms == Terms::kProducts ? y : x, at.thread, [&](int k) {
          const int64_t j = first + k / kNumbers * (kNumbers * kThreads) + k % kNumbers;
          return Pair{bits_of(values[j]), bits_of(factors[j])};
        });
      }
      begin -= all;
      end -= all;
    }
    windows.flush(sums, at.thread);
    sums.add_to(total, at.thread);
  }

  struct Pair {
    Bits x, y;
  };

  FS_DEVICE static void load_numbers(const T* numbers, int64_t first, int64_t n, bool whole,
                                     Bits (&out)[kEach]) {
#pragma unroll
    for (int v = 0; v < kVectors<T>; ++v) {
      const int64_t at = first + v * (kNumbers * kThreads);
      T values[kNumbers];
      if (whole) {
        load_all<Read::kLater>(numbers + at, values);
      } else {
#pragma unroll
        for (int k = 0; k < kNumbers; ++k) {
          values[k] = at + k < n ? numbers[at + k] : T{};
        }
      }
#pragma unroll
      for (int k = 0; k < kNumbers; ++k) {
        out[v * kNumbers + k] = bits_of(values[k]);
      }
    }
  }

  // Terms in the window at once, the few others one by one: `pair_at` has the numbers again.
  template <class PairAt>
  FS_DEVICE static void add_tile(Windows& windows, Sums& sums, const Bits (&x)[kEach],
                                 const Bits (&y)[kEach], uint32_t thread, const PairAt& pair_at) {
    int most = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int field = field_of(x[k], y[k]);
      most = field > most ? field : most;
    }
    if (any_of_warp(most > windows.base + kReach)) {
      most = 0;
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const int field = field_of(x[k], y[k]);
        most = field > most && field <= kMost ? field : most;
      }
      most = most_of_warp(most);
      if (most > windows.base + kReach) {
        windows.flush(sums, thread);
        const int base = most + kAbove - kReach;
        windows.base = base < kMost - kReach ? base : kMost - kReach;
      }
    }
    uint32_t others = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int field = field_of(x[k], y[k]);
      const uint32_t shift = static_cast<uint32_t>(field - windows.base);
      const bool near = shift <= kReach;
      const bool zero = field == 0 && (is_zero(x[k]) || is_zero(y[k]));
      Term term = term_of(x[k], y[k], true, true);
#pragma unroll
      for (int64_t& integer : term.integers) {
        integer = near ? integer : 0;
      }
      windows.add(windows.near, term, static_cast<int>(shift & 63));
      others |= near || zero ? 0u : 1u << k;
    }
#pragma unroll 1
    for (int k = 0; others != 0; ++k, others >>= 1) {
      if ((others & 1) != 0) {
        const Pair pair = pair_at(k);
        add_other(windows, sums, pair.x, pair.y);
      }
    }
  }

  FS_DEVICE static int exponent_of(Bits x) {
    return static_cast<int>(x >> kFraction<T>) & kFields;
  }
  FS_DEVICE static bool is_zero(Bits x) {
    return static_cast<Bits>(x << 1) == 0;
  }

  // 0 of what has to be looked at, more than kMost of what is not finite.
  FS_DEVICE static int field_of(Bits x, Bits y) {
    const int e = exponent_of(x);
    if constexpr (kTerms != Terms::kProducts) {
      return kTimes * e;
    } else {
      const int f = exponent_of(y);
      return e == kFields || f == kFields ? kTimes * kFields : e == 0 || f == 0 ? 0 : e + f;
    }
  }

  // The fraction with the digit before it, which subnormal numbers do not have.
  FS_DEVICE static uint64_t significand_of(Bits x, bool normal) {
    constexpr Bits kDigit = static_cast<Bits>(Bits{1} << kFraction<T>);
    return (x & (kDigit - 1)) | (normal ? kDigit : 0);
  }

  // Of finite numbers, each of field 1 or more if normal.
  FS_DEVICE static Term term_of(Bits x, Bits y, bool x_normal, bool y_normal) {
    constexpr int kSign = 8 * static_cast<int>(sizeof(T)) - 1;
    const uint64_t a = significand_of(x, x_normal), b = significand_of(y, y_normal);
    const bool negative = ((kTerms == Terms::kValues ? x : x ^ y) >> kSign & 1) != 0;
    const int64_t sign = negative ? -1 : 1;
    if constexpr (kParts == 3) {
      const int64_t mask = (int64_t{1} << 27) - 1;
      const int64_t a1 = static_cast<int64_t>(a >> 27), a0 = static_cast<int64_t>(a) & mask;
      const int64_t b1 = static_cast<int64_t>(b >> 27), b0 = static_cast<int64_t>(b) & mask;
      return Term{{sign * a0 * b0, sign * (a1 * b0 + a0 * b1), sign * a1 * b1}};
    } else {
      return Term{{sign * static_cast<int64_t>(kTerms == Terms::kValues ? a : a * b)}};
    }
  }

  // A number that the first window does not take.
  FS_DEVICE static void add_other(Windows& windows, Sums& sums, Bits x, Bits y) {
    const int e = exponent_of(x), f = exponent_of(y);
    if (e == kFields || f == kFields) {
      const double value = static_cast<double>(to_real(same_bits<T>(x)));
      const double factor = static_cast<double>(to_real(same_bits<T>(y)));
      sums.add(exact_kind(kTerms == Terms::kValues ? value : value * factor), 1);
      return;
    }
    const Term term = term_of(x, y, e != 0, f != 0);
    const int field = (e == 0 ? 1 : e) + (kTerms == Terms::kValues ? 0 : f == 0 ? 1 : f);
    const int near = field - windows.base, far = field - windows.far_base();
    if (near >= 0 && near <= kReach) {  // more with a subnormal factor, which sets no base
      windows.add(windows.near, term, near);
    } else if (near < 0 && far >= 0) {
      windows.add(windows.far, term, far);
    } else {
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        add_scaled(term.integers[i], field - kOffset + 27 * i,
                   [&](int limb, int64_t part) { sums.add(limb, static_cast<uint64_t>(part)); });
      }
    }
  }
};

// Limbs are carried, and the values counted.
struct CarryExact {
  static constexpr int kMinBlocks = 1;
  static constexpr int kTogether = 19;
  static_assert((kExactLimbs - 1) % kTogether == 0, "all limbs but the last one");
  int64_t count;
  int64_t* total;

  FS_DEVICE void operator()(ThreadIndex at) const {
    if (at.block != 0 || at.thread != 0) {
      return;
    }
    int64_t carry = 0;
#pragma unroll 1
    for (int begin = 0; begin + 1 < kExactLimbs; begin += kTogether) {
      int64_t limbs[kTogether];  // the chain of carries does not wait for memory each time
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        limbs[i] = total[begin + i];
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        carry += limbs[i];
        total[begin + i] = carry & 0xffffffff;
        carry >>= 32;
      }
    }
    total[kExactLimbs - 1] += carry;
    total[kExactCount] += count;
  }
};

template <class T>
void launch_table(const ExactTable<T>& parts, int64_t count, int64_t* total, CudaStream cuda) {
  int64_t tiles = 0;
  bool products = false;
  for (int i = 0; i < parts.count; ++i) {
    tiles += tiles_of<T>(parts.sizes[i]);
    products = products || parts.factors[i] != parts.values[i];
  }
  if (parts.count == 0 || parts.factors[0] == nullptr) {
    launch(ExactTiles<T, Terms::kValues>{parts, tiles, total}, tiles, "exact_sum", cuda);
  } else if (!products) {
    launch(ExactTiles<T, Terms::kSquares>{parts, tiles, total}, tiles, "exact_sum", cuda);
  } else {
    launch(ExactTiles<T, Terms::kProducts>{parts, tiles, total}, tiles, "exact_sum", cuda);
  }
  launch(CarryExact{count, total}, 1, "exact_sum", cuda);
}

}  // namespace

// In launches of as many values as limbs have room for, and one at least: it carries.
template <class T>
void launch_exact_sum(const std::vector<ExactPart<T>>& parts, int64_t* total, CudaStream cuda) {
  ExactTable<T> table = {};
  int64_t room = kMostUncarried;
  const auto flush = [&] {
    launch_table(table, kMostUncarried - room, total, cuda);
    table.count = 0;
    room = kMostUncarried;
  };
  for (const ExactPart<T>& part : parts) {
    for (int64_t at = 0; at < part.n;) {
      if (table.count == kMostParts || room == 0) {
        flush();
      }
      const int64_t size = std::min(part.n - at, room);
      const int i = table.count++;
      table.values[i] = part.values + at;
      table.factors[i] = part.factors == nullptr ? nullptr : part.factors + at;
      table.sizes[i] = size;
      room -= size;
      at += size;
    }
  }
  flush();
}

#define FS_INSTANTIATE(T) \
  template void launch_exact_sum<T>(const std::vector<ExactPart<T>>&, int64_t*, CudaStream);
FS_EACH_REAL(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
