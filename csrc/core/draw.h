// From the words of a stream to values: docs/spec/random.md is the specification; frozen like the
// derivation.
//
// A distribution is a small struct: `kName` is its operator where its parameters are reals, `Value`
// what it makes, `kWords` how many 32-bit words one
// value takes, `kResident` how many blocks of 256 threads a multiprocessor has to hold (65,536
// registers are 32 a thread for 8), and `operator()` turns one block into the `4 / kWords` values
// that lie in it.
#pragma once
#include <cstdint>

#include "derive.h"
#include "float16.h"
#include "fp_math.h"
#include "normal_quantile.h"
#include "philox.h"
#include "strided_layout.h"

namespace fastseed {

// Block `block` of the stream of a key: that of cuRAND's (seed lo, subsequence hi, offset 4 block).
FS_HD Block draw_block(Key key, uint64_t block) {
  return philox4x32(key.lo,
                    Block{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                           static_cast<uint32_t>(key.hi), static_cast<uint32_t>(key.hi >> 32)}});
}

// The block in which a draw from `position` (in words) begins: the first whole one.
FS_HD uint64_t first_block(uint64_t position) {
  return (position + 3) / 4;
}

// Words for values that could not use their own; `word` is the place of the value's first word in
// the stream. Tags 0x80 to 0xff in the top byte of the second counter word, which draws leave 0.
constexpr uint64_t kRetryTag = uint64_t{0x80} << 56;
constexpr int kRetryBlocks = 128;

FS_HD Block retry_block(Key key, uint64_t word, int attempt) {
  return draw_block(key, word | (kRetryTag + (static_cast<uint64_t>(attempt) << 56)));
}

// One block of a stream, with where it came from.
struct Drawn {
  Block words;
  Key key;
  uint64_t block;

  FS_HD uint64_t pair(int i) const {
    return i == 0 ? words.lo() : words.hi();
  }
};

template <class T>
struct Bits;

template <>
struct Bits<uint32_t> {
  using Value = uint32_t;
  static constexpr int kWords = 1;
  static constexpr int kResident = 6;

  FS_HD void operator()(const Drawn& d, uint32_t (&out)[4]) const {
    for (int i = 0; i < 4; ++i) {
      out[i] = d.words.w[i];
    }
  }
};

template <>
struct Bits<uint64_t> {
  using Value = uint64_t;
  static constexpr int kWords = 2;
  static constexpr int kResident = 6;

  FS_HD void operator()(const Drawn& d, uint64_t (&out)[2]) const {
    out[0] = d.pair(0);
    out[1] = d.pair(1);
  }
};

// The first bits of a word as a number in [0, 1): exact, never 1.
FS_HD float unit(uint32_t w) {
  return mul(static_cast<float>(w >> 8), 0x1p-24f);
}
FS_HD double unit(uint64_t a) {
  return mul(to_double(static_cast<int64_t>(a >> 11)), 0x1p-53);
}

// Word i, of the width that reals of this type are made from.
FS_HD uint32_t word(const Drawn& d, int i, float) {
  return d.words.w[i];
}
FS_HD uint64_t word(const Drawn& d, int i, double) {
  return d.pair(i);
}

// shift + span u, u in [0, 1), but never above `cap`: the largest T below the upper bound.
template <class T>
struct Uniform {
  using Value = T;
  static constexpr const char* kName = "draw_uniform";
  using Real = RealOf<T>;
  static constexpr int kWords = sizeof(Real) / 4;
  static constexpr int kResident = 8;
  Real span, shift, cap;

  FS_HD void operator()(const Drawn& d, T (&out)[4 / kWords]) const {
    for (int i = 0; i < 4 / kWords; ++i) {
      const Real x = add(mul(unit(word(d, i, Real())), span), shift);
      out[i] = rounded<T>(x < cap ? x : cap);
    }
  }
};

// mean + std z; values 2i and 2i + 1 come from words 2i and 2i + 1 (Box and Muller, 1958).
template <class T>
struct Normal {
  using Value = T;
  static constexpr const char* kName = "draw_normal";
  using Real = RealOf<T>;
  static constexpr int kWords = sizeof(Real) / 4;
  static constexpr int kResident = kWords == 2 ? 5 : 6;
  Real mean, std;

  FS_HD void operator()(const Drawn& d, T (&out)[4 / kWords]) const {
    for (int i = 0; i < 4 / kWords; i += 2) {
      const Real e = negative_log(word(d, i, Real()));
      const Real radius = square_root(add(e, e));
      const CosSin<Real> angle = cos_sin(word(d, i + 1, Real()));
      out[i] = rounded<T>(add(mul(mul(radius, angle.cos), std), mean));
      out[i + 1] = rounded<T>(add(mul(mul(radius, angle.sin), std), mean));
    }
  }
};

// mean + std z of the part of the normal distribution between two z, then held in [low, high]. That
// part holds `span` of it, and there is `below` to its left and `above` to its right; `middle` is
// where its middle lies, from the middle of the distribution.
template <class T>
struct TruncNormal {
  using Value = T;
  static constexpr const char* kName = "draw_trunc_normal";
  using Real = RealOf<T>;
  static constexpr int kWords = sizeof(Real) / 4;
  static constexpr int kResident = kWords == 2 ? 3 : 4;  // 64 registers are enough
  Real mean, std, middle, span, below, above, low, high;

  FS_HD void operator()(const Drawn& d, T (&out)[4 / kWords]) const {
    // Spelled out: compilers that leave this loop a loop make no vector code of the one around it.
    out[0] = value(d, 0);
    out[1] = value(d, 1);
    if constexpr (kWords == 1) {
      out[2] = value(d, 2);
      out[3] = value(d, 3);
    }
  }

 private:
  FS_HD T value(const Drawn& d, int i) const {
    const Real x = add(mul(standard(word(d, i, Real())), std), mean);
    const Real raised = x < low ? low : x;
    return rounded<T>(raised < high ? raised : high);
  }
  FS_HD Real standard(uint32_t w) const {
    const uint32_t odd = w | 1u;  // as a signed number of 2^-32, the place from the middle
    const bool lower = odd >> 31 != 0;
    const uint32_t edge = lower ? odd ^ 0x80000000u : 0x80000000u - odd;  // from the nearer end
    return quantile(mul(static_cast<float>(static_cast<int32_t>(odd)), 0x1p-32f),
                    mul(static_cast<float>(static_cast<int32_t>(edge)), 0x1p-32f), lower);
  }
  FS_HD Real standard(uint64_t a) const {
    constexpr uint64_t kTop = uint64_t{1} << 63;
    const uint64_t odd = a | 1u;
    const bool lower = odd >> 63 != 0;
    const uint64_t edge = lower ? odd ^ kTop : kTop - odd;
    return quantile(mul(to_double(static_cast<int64_t>(odd)), 0x1p-64),
                    mul(to_double(static_cast<int64_t>(edge)), 0x1p-64), lower);
  }

  FS_HD Real quantile(Real place, Real edge, bool lower) const {
    const Real q = add(mul(place, span), middle);
    const bool left = q < Real(0);  // measured from the left end, else from the right one
    const Real inside = left == lower ? edge : add(Real(1), -edge);
    return normal_quantile(q, add(mul(inside, span), left ? below : above));
  }
};

// -ln u times `scale`, one over the rate.
template <class T>
struct Exponential {
  using Value = T;
  static constexpr const char* kName = "draw_exponential";
  using Real = RealOf<T>;
  static constexpr int kWords = sizeof(Real) / 4;
  static constexpr int kResident = kWords == 2 ? 5 : 6;
  Real scale;

  FS_HD void operator()(const Drawn& d, T (&out)[4 / kWords]) const {
    for (int i = 0; i < 4 / kWords; ++i) {
      out[i] = rounded<T>(mul(negative_log(word(d, i, Real())), scale));
    }
  }
};

// One where the word is below `threshold` (of 2^32), else zero.
template <class T>
struct Bernoulli {
  using Value = T;
  static constexpr int kWords = 1;
  static constexpr int kResident = sizeof(T) == 1 ? 5 : 8;  // four Philox blocks a thread
  uint64_t threshold;
  T zero, one;

  FS_HD void operator()(const Drawn& d, T (&out)[4]) const {
    for (int i = 0; i < 4; ++i) {
      out[i] = d.words.w[i] < threshold ? one : zero;
    }
  }
};

FS_HD uint64_t multiply_high(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// low + a number in [0, range), each as likely as any other: the high half of word times range,
// where the low half is not among the 2^32 mod range (2^64 mod range) least (Lemire, 2019).
template <class T, class Word>
struct RandInt {
  using Value = T;
  static constexpr int kWords = sizeof(Word) / 4;
  static constexpr int kResident = sizeof(T) == 1 || sizeof(T) > sizeof(Word) ? 3 : 4;
  int64_t low;
  Word range;      // not 0
  Word threshold;  // 2^32 (2^64) modulo range

  FS_HD void operator()(const Drawn& d, T (&out)[4 / kWords]) const {
    uint32_t rejected = 0;  // few, unless the range is large
    for (int i = 0; i < kValues; ++i) {
      Word w = pick(d.words, i);
      const bool is_rejected = w * range < threshold;
#if defined(__CUDA_ARCH__)
      rejected |= (is_rejected ? 1u : 0u) << i;
#else
      w = is_rejected ? retry(d, i) : w;
#endif
      out[i] = value(w);
    }
    // On devices all values share one copy of the code.
    FS_NO_UNROLL for (int i = 0; rejected != 0; ++i, rejected >>= 1) {
      if ((rejected & 1) != 0) {
        const T found = value(retry(d, i));
        for (int k = 0; k < kValues; ++k) {  // registers have no index
          out[k] = k == i ? found : out[k];
        }
      }
    }
  }

 private:
  static constexpr int kValues = 4 / kWords;

  FS_HD T value(Word w) const {
    return static_cast<T>(static_cast<uint64_t>(low) + high(w));
  }

  FS_HD static Word pick(const Block& b, int i) {
    return sizeof(Word) == 4 ? static_cast<Word>(b.w[i])
                             : static_cast<Word>(i == 0 ? b.lo() : b.hi());
  }

  FS_HD Word retry(const Drawn& d, int i) const {
    const uint64_t word = 4 * d.block + static_cast<uint64_t>(i * kWords);
    Word w = 0;
    FS_NO_UNROLL for (int attempt = 0; attempt < kRetryBlocks; ++attempt) {
      const Block b = retry_block(d.key, word, attempt);
      for (int k = 0; k < kValues; ++k) {
        w = pick(b, k);
        if (w * range >= threshold) {
          return w;
        }
      }
    }
    return w;  // once in 2^256 values at the worst
  }

  FS_HD uint64_t high(uint32_t w) const {
    return static_cast<uint64_t>(w) * range >> 32;
  }
  FS_HD uint64_t high(uint64_t w) const {
    return multiply_high(w, range);
  }
};

template <class T>
using RandIntNarrow = RandInt<T, uint32_t>;  // of a range below 2^32
template <class T>
using RandIntWide = RandInt<T, uint64_t>;

// Every distribution in every type that has loops and kernels.
#define FS_OF_EACH_REAL(apply, D) apply(D<float>) apply(D<double>) apply(D<Half>) apply(D<BFloat16>)

#define FS_EACH_INTEGER(apply)                                                              \
  apply(RandIntNarrow<uint8_t>) apply(RandIntNarrow<int32_t>) apply(RandIntNarrow<int64_t>) \
      apply(RandIntWide<int64_t>)

#define FS_EACH_DISTRIBUTION(apply)                                                          \
  apply(Bits<uint32_t>) apply(Bits<uint64_t>) FS_OF_EACH_REAL(apply, Uniform)                \
      FS_OF_EACH_REAL(apply, Normal) FS_OF_EACH_REAL(apply, Exponential)                     \
          FS_OF_EACH_REAL(apply, Bernoulli) apply(Bernoulli<uint8_t>) FS_EACH_INTEGER(apply) \
              FS_OF_EACH_REAL(apply, TruncNormal)

// Row r of an output is drawn from key (keys[2 r], keys[2 r + 1]) at positions[r], or 0 if null.
struct Streams {
  const uint64_t* keys;
  const int64_t* positions;
  int64_t count;
};

// Writes values of the output, which has streams.count * layout.runs * layout.length of them, and
// nothing else: out points to the first of all.
template <class D>
void launch_draw(const D& distribution, const Streams& streams, const Layout& layout,
                 typename D::Value* out, Range part);
template <class D>
void launch_draw(const D& distribution, const Streams& streams, const Layout& layout,
                 typename D::Value* out, CudaStream cuda);

}  // namespace fastseed
