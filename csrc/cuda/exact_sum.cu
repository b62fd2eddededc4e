// Exact sums on CUDA devices. A thread adds what lies close together to an integer of 128 bits in
// registers, those of a warp are added, and the first thread adds the sum to the total. What is far
// from the others goes to the total directly. Whoever adds, and in what order, changes no bit.
#include "../kernels/exact_sum.h"
#include "device.cuh"

namespace fastseed {
namespace {

enum class Terms { kValues, kSquares, kProducts };

constexpr int kEach = 4;  // values of a thread in a tile
constexpr int64_t kTile = int64_t{kEach} * kThreads;
// Integers are below 2^55. A launch of kMostUncarried values has at least 8 blocks, so a warp adds
// at most 2^20 of them, and 128 bits hold their sum.
constexpr int kReach = 50;   // of exponents that a window takes
constexpr int kAnchor = 40;  // the first exponent's place among them

FS_DEVICE float load_number(const float* at) {
  return __ldcs(at);
}
FS_DEVICE double load_number(const double* at) {
  return __ldcs(at);
}
FS_DEVICE float load_number(const Half* at) {
  return to_float(Half{__ldcs(reinterpret_cast<const uint16_t*>(at))});
}
FS_DEVICE float load_number(const BFloat16* at) {
  return to_float(BFloat16{__ldcs(reinterpret_cast<const uint16_t*>(at))});
}

// integer * 2^exponent, of a finite number.
struct Term {
  int64_t integer;
  int exponent;
};

FS_DEVICE Term term_of(float x) {
  const uint32_t bits = float_bits(x), fraction = bits & 0x7fffffu;
  const int field = static_cast<int>(bits >> 23 & 0xffu);
  const int32_t significand = static_cast<int32_t>(field == 0 ? fraction : fraction | 0x800000u);
  return Term{(bits >> 31) != 0 ? -significand : significand, (field == 0 ? 1 : field) - 150};
}
FS_DEVICE Term term_of(double x) {
  const ExactParts p = exact_parts(x);
  const int64_t significand = static_cast<int64_t>(p.significand);
  return Term{p.negative ? -significand : significand, p.exponent};
}

struct AddAtomically {
  int64_t* total;

  FS_DEVICE void operator()(int limb, int64_t part) const {
    atomicAdd(reinterpret_cast<unsigned long long*>(total + limb),
              static_cast<unsigned long long>(part));
  }
};

// An integer of 128 bits, in units of 2^base.
struct Window {
  uint64_t low;
  uint64_t high;
  int base;

  FS_DEVICE void add(const Term& term) {
    const int shift = term.exponent - base;  // in [0, kReach]
    const uint64_t part = static_cast<uint64_t>(term.integer) << shift;
    const int64_t above = shift == 0 ? term.integer >> 63 : term.integer >> (64 - shift);
    low += part;
    high += static_cast<uint64_t>(above) + (low < part ? 1 : 0);
  }

  FS_DEVICE void flush(const AddAtomically& add) {
    add_scaled(static_cast<int64_t>(low & 0xffffffffu), base, add);
    add_scaled(static_cast<int64_t>(low >> 32), base + 32, add);
    add_scaled(static_cast<int64_t>(high & 0xffffffffu), base + 64, add);
    add_scaled(static_cast<int64_t>(high) >> 32, base + 96, add);
    low = high = 0;
  }
};

template <class T, Terms kTerms>
struct ExactTiles {
  static constexpr int kMinBlocks = 3;
  using Number = decltype(load_number(static_cast<const T*>(nullptr)));
  // A product of two doubles has 106 digits, more than a window takes.
  static constexpr bool kHasWindow = sizeof(Number) < 8 || kTerms == Terms::kValues;
  ExactTable<T> parts;
  int64_t* total;

  FS_DEVICE void operator()(ThreadIndex at) const {
    int64_t tile = at.block;
    for (int i = 0; i < parts.count; ++i) {
      const int64_t tiles = (parts.sizes[i] + kTile - 1) / kTile;
      if (tile < tiles) {
        sum(i, tile, at);
        tile += (tiles - tile + at.blocks - 1) / at.blocks * at.blocks;
      }
      tile -= tiles;
    }
  }

  // The tiles of part i from `tile` on, each `blocks` after the one before.
  FS_DEVICE void sum(int i, int64_t tile, ThreadIndex at) const {
    const int64_t n = parts.sizes[i], step = int64_t{at.blocks} * kTile;
    const T* values = parts.values[i];
    const T* factors = kTerms == Terms::kProducts ? parts.factors[i] : nullptr;
    int64_t first = tile * kTile + at.thread;
    Window window{0, 0, 0};
    if constexpr (kHasWindow) {
      window.base = base_of_warp(first < n ? values + first : nullptr);
    }
    const int shared_base = window.base;
#pragma unroll 1
    for (; first < n; first += step) {
      Number x[kEach], y[kEach];
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const int64_t j = first + int64_t{k} * kThreads;
        x[k] = j < n ? load_number(values + j) : Number{0};
        y[k] = kTerms == Terms::kProducts && j < n ? load_number(factors + j) : x[k];
      }
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        add(window, x[k], y[k]);
      }
    }
    if constexpr (kHasWindow) {
      add_of_warp(window, shared_base, at.thread);
    }
  }

  FS_DEVICE void add(Window& window, Number x, Number y) const {
    const AddAtomically direct{total};
    if constexpr (!kHasWindow) {
      add_product_exactly(x, y, direct);
    } else {
      // a product of finite floats is finite in float64
      const double wide = kTerms == Terms::kValues ? x : static_cast<double>(x) * y;
      if (is_finite(wide)) {
        add_term(window, term_of(x), term_of(y));
      } else {
        direct(exact_kind(wide), 1);
      }
    }
  }

  FS_DEVICE void add_term(Window& window, Term term, Term factor) const {
    const AddAtomically direct{total};
    if (kTerms != Terms::kValues) {
      term = Term{term.integer * factor.integer, term.exponent + factor.exponent};
    }
    if (term.integer == 0) {
      return;
    }
    if (term.exponent > window.base + kReach) {
      window.flush(direct);
      window.base = term.exponent - kAnchor;
    }
    if (term.exponent >= window.base) {
      window.add(term);
    } else {
      add_scaled(term.integer, term.exponent, direct);
    }
  }

  // A base for the window of all threads of a warp, by the greatest of their first values.
  FS_DEVICE static int base_of_warp(const T* first) {
    int exponent = -1200;  // of no value
    if (first != nullptr) {
      exponent = term_of(load_number(first)).exponent;
    }
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const int other = __shfl_xor_sync(0xffffffffu, exponent, lanes);
      exponent = other > exponent ? other : exponent;
    }
#endif
    return (kTerms == Terms::kValues ? exponent : 2 * exponent) - kAnchor;
  }

  // Windows that still have the base of their warp are added by its first thread; a host has no
  // warps, and each thread adds its own.
  FS_DEVICE void add_of_warp(Window& window, int base, uint32_t thread) const {
    const AddAtomically direct{total};
#if defined(__CUDA_ARCH__)
    if (window.base != base) {
      window.flush(direct);
      window.base = base;
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const uint64_t low = __shfl_xor_sync(0xffffffffu, window.low, lanes);
      const uint64_t high = __shfl_xor_sync(0xffffffffu, window.high, lanes);
      window.low += low;
      window.high += high + (window.low < low ? 1 : 0);
    }
    if (thread % 32 != 0) {
      return;
    }
#else
    (void)base;
    (void)thread;
#endif
    if ((window.low | window.high) != 0) {
      window.flush(direct);
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

}  // namespace

template <class T>
void launch_exact_sum_cuda(const ExactTable<T>& parts, int64_t* total, void* cuda_stream) {
  int64_t count = 0, tiles = 0;
  bool products = false;
  for (int i = 0; i < parts.count; ++i) {
    count += parts.sizes[i];
    tiles += (parts.sizes[i] + kTile - 1) / kTile;
    products = products || parts.factors[i] != parts.values[i];
  }
  if (parts.count == 0 || parts.factors[0] == nullptr) {
    launch(ExactTiles<T, Terms::kValues>{parts, total}, tiles, "exact_sum", cuda_stream);
  } else if (!products) {
    launch(ExactTiles<T, Terms::kSquares>{parts, total}, tiles, "exact_sum", cuda_stream);
  } else {
    launch(ExactTiles<T, Terms::kProducts>{parts, total}, tiles, "exact_sum", cuda_stream);
  }
  launch(CarryExact{count, total}, 1, "exact_sum", cuda_stream);
}

#define FS_INSTANTIATE(T) \
  template void launch_exact_sum_cuda<T>(const ExactTable<T>&, int64_t*, void*);
FS_EACH_EXACT(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
