// Philox over SIMD lanes, written once for every vector type.
//
// One block a 64-bit lane: a counter word sits in the low half of its lane and whatever the last
// product left in the upper half is harmless, because the 32x32 -> 64 multiply reads low halves
// only. So a round is two multiplies, two shifts and two three-way exclusive ors, with no masking.
//
// Blocks of one range share the counter's last two words, and all but a few share the second, so
// the first three rounds are partly the same for all of them: 3 of the 20 products are computed
// once (4 of 20 when only the low half of a block is wanted).
//
// The including file defines FS_LANES (the target attribute) and the vector type, in an anonymous
// namespace; so nothing here is shared between translation units of different targets.
#pragma once
#include <cstdint>

#include "../core/mt19937.h"
#include "../core/philox.h"
#include "cpu.h"

namespace fastseed {
namespace {

template <class V>
struct Rounds {
  typename V::Type m0, m1;
  // Round r adds k0[r], k1[r]; those of the first three rounds hold what is common to the range.
  typename V::Type k0[kPhiloxRounds], k1[kPhiloxRounds];

  FS_LANES Rounds(const BlockRange& range, uint32_t w1) {
    m0 = V::set(kPhiloxM0);
    m1 = V::set(kPhiloxM1);
    uint32_t a[kPhiloxRounds], b[kPhiloxRounds];
    for (int r = 0; r < kPhiloxRounds; ++r) {
      a[r] = static_cast<uint32_t>(range.key) + static_cast<uint32_t>(r) * kPhiloxW0;
      b[r] = static_cast<uint32_t>(range.key >> 32) + static_cast<uint32_t>(r) * kPhiloxW1;
    }
    const uint64_t p = static_cast<uint64_t>(kPhiloxM1) * range.w2;  // of round 0
    const uint32_t c0 = static_cast<uint32_t>(p >> 32) ^ w1 ^ a[0];
    const uint64_t q = static_cast<uint64_t>(kPhiloxM0) * c0;  // of round 1
    b[0] ^= range.w3;
    a[1] ^= static_cast<uint32_t>(p);
    b[1] ^= static_cast<uint32_t>(q >> 32);
    b[2] ^= static_cast<uint32_t>(q);
    for (int r = 0; r < kPhiloxRounds; ++r) {
      k0[r] = V::set(a[r]);
      k1[r] = V::set(b[r]);
    }
  }
};

// Low and high 64 bits of kLanes blocks each.
template <class V>
struct Halves {
  typename V::Type lo, hi;
};

// The state of kGroups vectors of blocks. Their rounds are written interleaved: one after another,
// the dependent chain of each would fill the CPU's schedulers before the next one starts.
template <class V, int kGroups>
struct Words {
  typename V::Type c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
};

#define FS_UNROLL _Pragma("GCC unroll 8")
#define FS_EACH FS_UNROLL for (int g = 0; g < kGroups; ++g)

// The blocks whose first counter word is the low half of each lane of `x`.
template <class V, bool kBoth, int kGroups>
FS_LANES void philox_lanes(const Rounds<V>& k, const typename V::Type* x, Halves<V>* out) {
  using T = typename V::Type;
  constexpr int kLast = kPhiloxRounds - 1;
  Words<V, kGroups> w;
  T p0[kGroups], p1[kGroups];
  FS_EACH p0[g] = V::mul(k.m0, x[g]);  // round 0
  FS_EACH w.c2[g] = V::exor(V::upper(p0[g]), k.k1[0]);
  FS_EACH w.c3[g] = p0[g];
  FS_EACH p1[g] = V::mul(k.m1, w.c2[g]);  // round 1
  FS_EACH w.c0[g] = V::exor(V::upper(p1[g]), k.k0[1]);
  FS_EACH w.c1[g] = p1[g];
  FS_EACH w.c2[g] = V::exor(w.c3[g], k.k1[1]);
  FS_EACH p0[g] = V::mul(k.m0, w.c0[g]);  // round 2
  FS_EACH p1[g] = V::mul(k.m1, w.c2[g]);
  FS_EACH w.c0[g] = V::exor3(V::upper(p1[g]), w.c1[g], k.k0[2]);
  FS_EACH w.c1[g] = p1[g];
  FS_EACH w.c2[g] = V::exor(V::upper(p0[g]), k.k1[2]);
  FS_EACH w.c3[g] = p0[g];
  FS_UNROLL for (int r = 3; r < kLast; ++r) {
    FS_EACH p0[g] = V::mul(k.m0, w.c0[g]);
    FS_EACH p1[g] = V::mul(k.m1, w.c2[g]);
    FS_EACH w.c0[g] = V::exor3(V::upper(p1[g]), w.c1[g], k.k0[r]);
    FS_EACH w.c1[g] = p1[g];
    FS_EACH w.c2[g] = V::exor3(V::upper(p0[g]), w.c3[g], k.k1[r]);
    FS_EACH w.c3[g] = p0[g];
  }
  FS_EACH p1[g] = V::mul(k.m1, w.c2[g]);
  FS_EACH out[g].lo = V::join(V::exor3(V::upper(p1[g]), w.c1[g], k.k0[kLast]), p1[g]);
  if (kBoth) {
    FS_EACH p0[g] = V::mul(k.m0, w.c0[g]);
    FS_EACH out[g].hi = V::join(V::exor3(V::upper(p0[g]), w.c3[g], k.k1[kLast]), p0[g]);
  }
}

template <class V, bool kBoth, bool kStream>
FS_LANES void store(uint64_t* out, const Halves<V>& h) {
  if (kBoth) {
    V::template store<kStream>(out, V::zip_low(h.lo, h.hi));
    V::template store<kStream>(out + V::kLanes, V::zip_high(h.lo, h.hi));
  } else {
    V::template store<kStream>(out, h.lo);
  }
}

// Fewer than kLanes blocks.
template <class V, bool kBoth>
FS_LANES void part(const Rounds<V>& k, typename V::Type x, int64_t n, uint64_t* out) {
  uint64_t words[2 * V::kLanes];
  Halves<V> h;
  philox_lanes<V, kBoth, 1>(k, &x, &h);
  store<V, kBoth, false>(words, h);
  for (int64_t i = 0; i < (kBoth ? 2 * n : n); ++i) {
    out[i] = words[i];
  }
}

// Blocks first to first + n - 1, whose indices share their upper 32 bits.
template <class V, bool kBoth, bool kStream>
FS_LANES void segment(const BlockRange& range, uint64_t first, int64_t n, uint64_t* out) {
  constexpr int64_t kWords = kBoth ? 2 : 1;
  constexpr int64_t kStep = V::kLanes;
  const Rounds<V> k(range, static_cast<uint32_t>((first ^ range.tweak) >> 32));
  const typename V::Type tweak = V::set(static_cast<uint32_t>(range.tweak));
  int64_t i = 0;
  if (kStream) {  // up to the first aligned store
    const int64_t head = V::words_to_aligned(out) / kWords;
    i = head < n ? head : n;
    part<V, kBoth>(k, V::exor(V::count_from(first), tweak), i, out);
  }
  typename V::Type index = V::count_from(first + static_cast<uint64_t>(i));
  const typename V::Type step = V::set(kStep);
  constexpr int kGroups = V::kGroups;
  for (; i + kGroups * kStep <= n; i += kGroups * kStep) {
    typename V::Type x[kGroups];
    Halves<V> h[kGroups];
    FS_EACH {
      x[g] = V::exor(index, tweak);
      index = V::add(index, step);
    }
    philox_lanes<V, kBoth, kGroups>(k, x, h);
    FS_EACH store<V, kBoth, kStream>(out + kWords * (i + g * kStep), h[g]);
  }
  for (; i + kStep <= n; i += kStep, index = V::add(index, step)) {
    const typename V::Type x = V::exor(index, tweak);
    Halves<V> h;
    philox_lanes<V, kBoth, 1>(k, &x, &h);
    store<V, kBoth, kStream>(out + kWords * i, h);
  }
  if (i < n) {
    part<V, kBoth>(k, V::exor(index, tweak), n - i, out + kWords * i);
  }
}

template <class V, bool kBoth>
FS_LANES void lanes_range(const BlockRange& range, int64_t n, uint64_t* out, Stores stores) {
  constexpr int64_t kWords = kBoth ? 2 : 1;
  const bool stream = stores == Stores::kStreaming && V::words_to_aligned(out) % kWords == 0;
  for (int64_t at = 0; at < n;) {
    const uint64_t first = range.start + static_cast<uint64_t>(at);
    const uint64_t to_boundary = (uint64_t{1} << 32) - (first & 0xffffffffu);
    const uint64_t rest = static_cast<uint64_t>(n - at);
    const int64_t count = static_cast<int64_t>(rest < to_boundary ? rest : to_boundary);
    if (stream) {
      segment<V, kBoth, true>(range, first, count, out + kWords * at);
    } else {
      segment<V, kBoth, false>(range, first, count, out + kWords * at);
    }
    at += count;
  }
  if (stream) {
    V::fence();
  }
}

// Initialises W::kLanes states side by side, one a 32-bit lane, kLanes words at a time, and turns
// each square of words so that a state's words lie one after another. Each step also asks for one
// cache line of each of the `next` states, so that they have arrived when their turn comes.
template <class W>
FS_LANES void lanes_init(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next) {
  constexpr int kLanes = W::kLanes;
  static_assert(kMtWords % kLanes == 0, "a state is a whole number of squares");
  typename W::Type square[kLanes];
  typename W::Type word = W::load(seeds);
  const typename W::Type multiplier = W::set(kMtInitMultiplier);
  for (int j = 0; j < kMtWords; j += kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      if (i + j > 0) {
        word = W::add(W::mul(multiplier, W::exor(word, W::shift30(word))),
                      W::set(static_cast<uint32_t>(j + i)));
      }
      square[i] = word;
    }
    W::transpose(square);
    for (int i = 0; i < kLanes; ++i) {
      W::store(states[i] + j, square[i]);
      if (next != nullptr) {
        __builtin_prefetch(next[i] + j, 1);
      }
    }
  }
}

}  // namespace
}  // namespace fastseed
