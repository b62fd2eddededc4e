// Philox over SIMD lanes, written once for every vector type.
//
// One block a 64-bit lane: a counter word sits in the low half of its lane and whatever the last
// product left in the upper half is harmless, because the 32x32 -> 64 multiply reads low halves
// only. So a round is two multiplies, two shifts and two three-way exclusive ors, with no masking.
// Blocks of one range share the counter's last two words, and all but a few share the second.
//
// For the files that lanes.h is for, and in an anonymous namespace as it is.
#pragma once
#include <cstdint>
#include <cstring>

#include "../core/derive.h"
#include "../core/mt19937.h"
#include "dispatch.h"

namespace fastseed {
namespace {

template <class V, bool kStream>
FS_LANES void put(uint64_t* out, typename V::Type v) {
  if (kStream) {
    V::stream(out, v);
  } else {
    V::store(out, v);
  }
}

// One after another in memory: vectors of lo, or of lo and hi in turns.
template <class V, bool kBoth, bool kStream, int kGroups>
FS_LANES void store(const LaneKeys<V>& k, uint64_t* out, FoldedBlock<V> (&blocks)[kGroups]) {
  for (int g = 0; g < kGroups; ++g) {
    folded_last<kBoth>(k, blocks[g]);
    const typename V::Type lo = V::join(blocks[g].w0, blocks[g].w1);
    if (kBoth) {
      const typename V::Type hi = V::join(blocks[g].w2, blocks[g].w3);
      uint64_t* at = out + 2 * g * V::kLanes;
      put<V, kStream>(at, V::zip_low(lo, hi));
      put<V, kStream>(at + V::kLanes, V::zip_high(lo, hi));
    } else {
      put<V, kStream>(out + g * V::kLanes, lo);
    }
  }
}

// kGroups vectors of blocks from index lane `index` on; moves `index` past them.
template <class V, bool kBoth, bool kStream, int kGroups>
FS_LANES void groups(const LaneKeys<V>& k, typename V::Type tweak, typename V::Type& index,
                     uint64_t* out) {
  FoldedBlock<V> blocks[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    blocks[g].w0 = V::bit_xor(index, tweak);
    index = V::add(index, V::set(V::kLanes));
  }
  folded_rounds(k, k.k1[1], k.k1[2], blocks);
  store<V, kBoth, kStream>(k, out, blocks);
}

// Fewer than kLanes blocks.
template <class V, bool kBoth>
FS_LANES void part(const LaneKeys<V>& k, typename V::Type tweak, typename V::Type index, int64_t n,
                   uint64_t* out) {
  uint64_t words[2 * V::kLanes];
  groups<V, kBoth, false, 1>(k, tweak, index, words);
  std::memcpy(out, words, static_cast<size_t>(kBoth ? 2 * n : n) * sizeof(uint64_t));
}

// The last of n blocks, those from block i on, in as few vectors as hold them. The vectors take
// every step together and end at block n, so that the first one repeats some blocks before i.
template <class V, bool kBoth, int kGroups>
FS_LANES void rest(const LaneKeys<V>& k, typename V::Type tweak, uint64_t first, int64_t i,
                   int64_t n, uint64_t* out) {
  if constexpr (kGroups > 1) {
    if (n - i <= (kGroups - 1) * V::kLanes) {
      rest<V, kBoth, kGroups - 1>(k, tweak, first, i, n, out);
      return;
    }
  }
  const int64_t from = n - kGroups * V::kLanes;
  typename V::Type index = V::count_from(first + static_cast<uint64_t>(from));
  groups<V, kBoth, false, kGroups>(k, tweak, index, out + (kBoth ? 2 : 1) * from);
}

// Blocks first to first + n - 1, whose indices share their upper 32 bits.
template <class V, bool kBoth, bool kStream>
FS_LANES void segment(const BlockRange& range, uint64_t first, int64_t n, uint64_t* out) {
  constexpr int64_t kWords = kBoth ? 2 : 1;
  constexpr int64_t kStep = V::kLanes;
  constexpr int64_t kStride = V::kDeriveGroups * kStep;
  const LaneKeys<V> k{FoldedKeys(range.key, static_cast<uint32_t>((first ^ range.tweak) >> 32),
                                 range.w2, range.w3)};
  const typename V::Type tweak = V::set(static_cast<uint32_t>(range.tweak));
  int64_t i = 0;
  if (kStream) {  // up to the first aligned store
    const int64_t head = V::words_to_aligned(out) / kWords;
    i = head < n ? head : n;
    part<V, kBoth>(k, tweak, V::count_from(first), i, out);
  }
  typename V::Type index = V::count_from(first + static_cast<uint64_t>(i));
  for (; i + kStride <= n; i += kStride) {
    groups<V, kBoth, kStream, V::kDeriveGroups>(k, tweak, index, out + kWords * i);
  }
  if (!kStream && n >= kStride && i < n) {
    rest<V, kBoth, V::kDeriveGroups>(k, tweak, first, i, n, out);
    return;
  }
  for (; i + kStep <= n; i += kStep) {
    groups<V, kBoth, kStream, 1>(k, tweak, index, out + kWords * i);
  }
  if (i < n) {
    part<V, kBoth>(k, tweak, index, n - i, out + kWords * i);
  }
}

template <class V, bool kBoth>
FS_TARGET void lanes_range(const BlockRange& range, int64_t n, uint64_t* out, Stores stores) {
  constexpr int64_t kWords = kBoth ? 2 : 1;
  const bool whole_words = reinterpret_cast<uintptr_t>(out) % sizeof(uint64_t) == 0;
  const bool stream =
      stores == Stores::kStreaming && whole_words && V::words_to_aligned(out) % kWords == 0;
  for (int64_t at = 0; at < n;) {
    const uint64_t first = range.start + static_cast<uint64_t>(at);
    const int64_t count = same_upper_half(first, n - at);
    if (stream) {
      segment<V, kBoth, true>(range, first, count, out + kWords * at);
    } else {
      segment<V, kBoth, false>(range, first, count, out + kWords * at);
    }
    at += count;
  }
  if (stream) {
    _mm_sfence();
  }
}

// Blocks of which each has a key of its own, k0 | k1 << 32.
template <class V>
FS_LANES FoldedBlock<V> philox_keyed(typename V::Type k0, typename V::Type k1, FoldedBlock<V> b) {
  const typename V::Type step0 = V::set(kPhiloxW0), step1 = V::set(kPhiloxW1);
  for (int r = 0; r < kPhiloxRounds; ++r) {
    philox_round(b, k0, k1);
    k0 = V::add(k0, step0);
    k1 = V::add(k1, step1);
  }
  return b;
}

// The keys of V::kLanes seeds: scope, name and stream.
template <class V>
FS_LANES void group_of_seeds(const uint64_t* seeds, const uint64_t* indices, const Name& name,
                             uint64_t* out) {
  const typename V::Type seed = V::load(seeds), index = V::load(indices), zero = V::set(0);
  const FoldedBlock<V> s = philox_keyed<V>(
      seed, V::shift_right_32(seed), {zero, zero, zero, V::set(with_domain(0, Domain::kScope))});
  const FoldedBlock<V> n = philox_keyed<V>(
      s.w0, s.w1,
      {V::bit_xor(s.w2, V::set(static_cast<uint32_t>(name.lo))),
       V::bit_xor(s.w3, V::set(static_cast<uint32_t>(name.lo >> 32))),
       V::set(static_cast<uint32_t>(name.hi)), V::set(static_cast<uint32_t>(name.hi >> 32))});
  const FoldedBlock<V> k =
      philox_keyed<V>(n.w0, n.w1,
                      {V::bit_xor(n.w2, index), V::bit_xor(n.w3, V::shift_right_32(index)),
                       V::set(with_domain(kSharedRank, Domain::kStream)), zero});
  const typename V::Type lo = V::join(k.w0, k.w1), hi = V::join(k.w2, k.w3);
  V::store(out, V::zip_low(lo, hi));
  V::store(out + V::kLanes, V::zip_high(lo, hi));
}

template <class V>
FS_TARGET void lanes_of_seeds(const uint64_t* seeds, const int64_t* indices, const Name& name,
                              int64_t n, uint64_t* out) {
  uint64_t seed[V::kLanes] = {}, index[V::kLanes] = {}, keys[2 * V::kLanes];
  for (int64_t i = 0; i < n; i += V::kLanes) {
    const int64_t count = n - i < V::kLanes ? n - i : V::kLanes;
    for (int64_t k = 0; k < count; ++k) {
      seed[k] = seeds[i + k];
      index[k] = indices == nullptr ? 0 : static_cast<uint64_t>(indices[i + k]);
    }
    group_of_seeds<V>(seed, index, name, keys);
    for (int64_t k = 0; k < 2 * count; ++k) {
      out[2 * i + k] = keys[k];
    }
  }
}

// Initializes W::kLanes states side by side, one a 32-bit lane, kLanes words at a time, and turns
// each square of words so that a state's words lie one after another. Each step also asks for one
// cache line of each of the `next` states, so that they have arrived when their turn comes.
template <class W>
FS_TARGET void lanes_init(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next) {
  constexpr int kLanes = W::kLanes;
  static_assert(kMtWords % kLanes == 0, "a state is a whole number of squares");
  typename W::Type square[kLanes];
  typename W::Type word;
  std::memcpy(&word, seeds, sizeof(word));
  for (int j = 0; j < kMtWords; j += kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      if (i + j > 0) {
        word = W::next_word(word, static_cast<uint32_t>(j + i));
      }
      square[i] = word;
    }
    W::transpose(square);
    for (int i = 0; i < kLanes; ++i) {
      std::memcpy(states[i] + j, &square[i], sizeof(square[i]));
      if (next != nullptr) {
        __builtin_prefetch(next[i] + j, 1);
      }
    }
  }
}

}  // namespace
}  // namespace fastseed
