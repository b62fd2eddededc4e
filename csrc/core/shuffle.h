// A keyed permutation of [0, n): the order of an epoch (docs/spec/derivation.md, "Shuffle"). Frozen
// like the derivation.
//
// A Feistel network over a x b, a rectangle that holds the n numbers, with cycle walking out of
// what it holds too many (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
#pragma once
#include <cstdint>

#include "derive.h"
#include "folded_philox.h"

namespace fastseed {

constexpr int64_t kShuffleMost = int64_t{1} << 48;
constexpr int64_t kShuffleSmall = 1 << 16;  // up to here: more rounds
constexpr int kShuffleMostRounds = 24;

// From positions to numbers, or from numbers to positions: the rounds backwards.
enum class Way { kForward, kBackward };

struct Shuffle {
  uint64_t key;     // of the rounds' blocks
  uint32_t w2, w3;  // and the last words of their counters
  int64_t n;
  uint32_t a, b;  // sides: a even, both in [4, 2^24]
  int rounds;     // even
};

FS_HD uint32_t shuffle_w1(int round) {
  return with_domain(static_cast<uint32_t>(round), Domain::kShuffle);
}

// The least s with s * s >= n, of n in [1, 2^48].
FS_HD int64_t square_side(int64_t n) {
  int64_t s = 0;
  for (int64_t bit = int64_t{1} << 24; bit != 0; bit >>= 1) {
    if ((s + bit) * (s + bit) <= n) {
      s += bit;
    }
  }
  return s * s < n ? s + 1 : s;
}

FS_HD Shuffle shuffle_of(Key key, int64_t n) {
  const int64_t s = square_side(n);
  const int64_t a = s < 4 ? 4 : s + s % 2;
  const int64_t b = (n + a - 1) / a;
  return Shuffle{key.lo,
                 static_cast<uint32_t>(key.hi),
                 static_cast<uint32_t>(key.hi >> 32),
                 n,
                 static_cast<uint32_t>(a),
                 static_cast<uint32_t>(b < 4 ? 4 : b),
                 n <= kShuffleSmall ? kShuffleMostRounds : kShuffleMostRounds / 2};
}

// The high 64 bits of (w0 | w1 << 32) * m, of m <= 2^24.
FS_HD uint32_t scaled(uint32_t w0, uint32_t w1, uint32_t m) {
  const uint64_t low = static_cast<uint64_t>(w0) * m >> 32;
  return static_cast<uint32_t>((static_cast<uint64_t>(w1) * m + low) >> 32);
}

// x + y modulo m, of x, y < m.
FS_HD uint32_t add_mod(uint32_t x, uint32_t y, uint32_t m) {
  const uint32_t sum = x + y;
  return sum < m ? sum : sum - m;
}

// x - y modulo m, of x, y < m.
FS_HD uint32_t subtract_mod(uint32_t x, uint32_t y, uint32_t m) {
  const uint32_t difference = x - y;
  return x < y ? difference + m : difference;
}

template <Way kWay>
FS_HD uint32_t move_mod(uint32_t x, uint32_t y, uint32_t m) {
  return kWay == Way::kForward ? add_mod(x, y, m) : subtract_mod(x, y, m);
}

template <Way kWay>
FS_HD uint32_t shuffle_step(const Shuffle& s, int round, uint32_t from, uint32_t to, uint32_t m) {
  const Block r = philox4x32(s.key, Block{{from, shuffle_w1(round), s.w2, s.w3}});
  return move_mod<kWay>(to, scaled(r.w[0], r.w[1], m), m);
}

// All rounds, once: a bijection of [0, a * b).
template <Way kWay>
FS_HD int64_t shuffle_once(const Shuffle& s, int64_t i) {
  uint32_t left = static_cast<uint32_t>(i / s.b);
  uint32_t right = static_cast<uint32_t>(i % s.b);
  for (int r = 0; r < s.rounds; r += 2) {
    if (kWay == Way::kForward) {
      left = shuffle_step<kWay>(s, r, right, left, s.a);
      right = shuffle_step<kWay>(s, r + 1, left, right, s.b);
    } else {
      right = shuffle_step<kWay>(s, s.rounds - 1 - r, left, right, s.b);
      left = shuffle_step<kWay>(s, s.rounds - 2 - r, right, left, s.a);
    }
  }
  return static_cast<int64_t>(left) * s.b + right;
}

// The number (or position) at which a walk that has come to `j` ends.
template <Way kWay>
FS_HD int64_t shuffle_walk(const Shuffle& s, int64_t j) {
  while (j >= s.n) {
    j = shuffle_once<kWay>(s, j);
  }
  return j;
}

// Which number is at position i, or at which position number i is: 0 <= i < n.
template <Way kWay = Way::kForward>
FS_HD int64_t shuffle_index(const Shuffle& s, int64_t i) {
  return s.n == 1 ? 0 : shuffle_walk<kWay>(s, shuffle_once<kWay>(s, i));
}

// The round keys of all Feistel rounds, whose blocks differ in the first two words of their
// counters: in place of k1[1] and k1[2], round r has second[r] and third[r].
struct ShuffleKeys {
  FoldedKeys folded;
  uint32_t second[kShuffleMostRounds];
  uint32_t third[kShuffleMostRounds];

  explicit ShuffleKeys(const Shuffle& s) : folded(s.key, shuffle_w1(0), s.w2, s.w3) {
    const uint32_t k1 = static_cast<uint32_t>(s.key >> 32);
    for (int r = 0; r < kShuffleMostRounds; ++r) {
      const uint64_t product = folded_product(s.key, shuffle_w1(r), s.w2);
      second[r] = (k1 + kPhiloxW1) ^ static_cast<uint32_t>(product >> 32);
      third[r] = (k1 + 2 * kPhiloxW1) ^ static_cast<uint32_t>(product);
    }
  }
};

// A seed of `bits` bits (31 or 32): no two ranks have the same one of a name, worker and index.
FS_HD uint64_t narrow_seed(const NameKey& name, uint32_t rank, uint32_t worker, uint64_t index,
                           int bits) {
  const Key key = stream_key(Stream{name, with_domain(0, Domain::kNarrow), worker}, index);
  return static_cast<uint64_t>(shuffle_index(shuffle_of(key, int64_t{1} << bits), rank));
}

// Positions start + k * stride, 0 <= k < count: all in [0, n) of the permutation.
struct Positions {
  int64_t start;
  int64_t stride;
  int64_t count;

  FS_HD int64_t operator[](int64_t k) const {
    return start + k * stride;
  }
};

// out[k] = the number at position k of `at`.
void launch_shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out, Range part);
void launch_shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out, CudaStream cuda);

// out[k] = the position of numbers[k], -1 if that is not in [0, n). No overlap but out == numbers.
void launch_shuffle_positions(const Shuffle& shuffle, const int64_t* numbers, int64_t count,
                              int64_t* out, Range part);
void launch_shuffle_positions(const Shuffle& shuffle, const int64_t* numbers, int64_t count,
                              int64_t* out, CudaStream cuda);

}  // namespace fastseed
