// The Feistel rounds over SIMD lanes, one position a 64-bit lane, written once for every vector
// type.
//
// As in derive_lanes.h, a word sits in the low half of its lane, and what is in the upper half does
// no harm where only a multiply reads it.
#pragma once
#include <cstdint>
#include <cstring>

#include "../core/shuffle.h"

namespace fastseed {
namespace {

// kGroups vectors take every step together, so that their dependent chains run side by side.
#define FS_EACH_GROUP FS_UNROLL for (int g = 0; g < kGroups; ++g)

template <class V, int kGroups>
struct Side {
  typename V::Type v[kGroups];
};

// ShuffleKeys in all lanes.
template <class V>
struct ShuffleLanes {
  LaneKeys<V> folded;
  typename V::Type second[kShuffleMostRounds], third[kShuffleMostRounds];

  FS_LANES explicit ShuffleLanes(const ShuffleKeys& k) : folded(k.folded) {
    for (int r = 0; r < kShuffleMostRounds; ++r) {
      second[r] = V::set(k.second[r]);
      third[r] = V::set(k.third[r]);
    }
  }
};

// `to` moves by the block of `from` in Feistel round r, modulo m.
template <Way kWay, class V, int kGroups>
FS_LANES void feistel(const ShuffleLanes<V>& k, int r, const Side<V, kGroups>& from,
                      Side<V, kGroups>& to, typename V::Type m) {
  using T = typename V::Type;
  FoldedBlock<V> blocks[kGroups];
  FS_EACH_GROUP {  // in memory until the last step: registers are for the chain (18 to 10 ns)
    __asm__("" : "+m"(to.v[g]));
    blocks[g].w0 = from.v[g];
  }
  folded_rounds(k.folded, k.second[r], k.third[r], blocks);
  FS_EACH_GROUP {
    folded_last<false>(k.folded, blocks[g]);
    const T low = V::shift_right_32(V::mul(blocks[g].w0, m));
    const T high = V::shift_right_32(V::add(V::mul(blocks[g].w1, m), low));
    if (kWay == Way::kForward) {
      const T sum = V::add(to.v[g], high);
      to.v[g] = V::min(sum, V::subtract(sum, m));  // which has wrapped around where sum < m
    } else {
      const T difference = V::subtract(to.v[g], high);
      to.v[g] = V::min(V::add(difference, m), difference);  // as above where it is negative
    }
  }
}

// All rounds of what is in `x`, before any walk.
template <Way kWay, class V, int kGroups>
FS_LANES void shuffle_lanes(const Shuffle& s, const ShuffleLanes<V>& k, Side<V, kGroups>& x) {
  using T = typename V::Type;
  const T a = V::set(s.a), b = V::set(s.b);
  Side<V, kGroups> left, right;
  FS_EACH_GROUP {
    left.v[g] = V::quotient(x.v[g], s.b);
    right.v[g] = V::subtract(x.v[g], V::mul(left.v[g], b));
  }
  for (int r = 0; r < s.rounds; r += 2) {
    if (kWay == Way::kForward) {
      feistel<kWay, V, kGroups>(k, r, right, left, a);
      feistel<kWay, V, kGroups>(k, r + 1, left, right, b);
    } else {
      feistel<kWay, V, kGroups>(k, s.rounds - 1 - r, left, right, b);
      feistel<kWay, V, kGroups>(k, s.rounds - 2 - r, right, left, a);
    }
  }
  FS_EACH_GROUP {
    x.v[g] = V::add(V::mul(left.v[g], b), right.v[g]);
  }
}

template <Way kWay, class V, int kGroups>
FS_LANES void shuffle_groups(const Shuffle& s, const ShuffleLanes<V>& k, Side<V, kGroups>& x,
                             int64_t count, int64_t* out) {
  shuffle_lanes<kWay, V, kGroups>(s, k, x);
  bool walk = false;
  FS_EACH_GROUP {
    V::store(out + g * V::kLanes, x.v[g]);
    walk = walk || V::any_from(x.v[g], s.n);
  }
  for (int64_t i = 0; walk && i < count; ++i) {
    out[i] = shuffle_walk<kWay>(s, out[i]);
  }
}

// Positions that count up, and the numbers there.
template <class V>
struct CountUp {
  static constexpr Way kWay = Way::kForward;
  typename V::Type position, step;

  template <int kGroups>
  FS_LANES void next(const int64_t*, Side<V, kGroups>& x) {
    FS_EACH_GROUP {
      x.v[g] = position;
      position = V::add(position, step);
    }
  }
};

// Numbers in the place of their positions.
template <class V>
struct InPlace {
  static constexpr Way kWay = Way::kBackward;

  template <int kGroups>
  FS_LANES void next(const int64_t* numbers, Side<V, kGroups>& x) {
    FS_EACH_GROUP {
      x.v[g] = V::load(numbers + g * V::kLanes);
    }
  }
};

// Of `count` of what `source` gives.
template <class V, class Source>
FS_LANES void shuffle_all(const Shuffle& s, Source source, int64_t count, int64_t* out) {
  constexpr int64_t kStride = V::kLanes * V::kShuffleGroups;
  const ShuffleLanes<V> k{ShuffleKeys(s)};
  Side<V, V::kShuffleGroups> x;
  int64_t i = 0;
  for (; i + kStride <= count; i += kStride) {
    source.next(out + i, x);
    shuffle_groups<Source::kWay, V, V::kShuffleGroups>(s, k, x, kStride, out + i);
  }
  const int64_t rest = count - i;
  if (rest > 0) {  // what is past the last is any number, and what it gives is left behind
    const size_t bytes = static_cast<size_t>(rest) * sizeof(int64_t);
    int64_t part[kStride] = {};
    if (Source::kWay == Way::kBackward) {
      std::memcpy(part, out + i, bytes);
    }
    if (rest <= V::kLanes) {
      Side<V, 1> few;
      source.next(part, few);
      shuffle_groups<Source::kWay, V, 1>(s, k, few, rest, part);
    } else {
      source.next(part, x);
      shuffle_groups<Source::kWay, V, V::kShuffleGroups>(s, k, x, rest, part);
    }
    std::memcpy(out + i, part, bytes);
  }
}

template <class V>
FS_TARGET void shuffle_range(const Shuffle& s, const Positions& at, int64_t* out) {
  alignas(64) int64_t first[V::kLanes];
  for (int i = 0; i < V::kLanes; ++i) {
    first[i] = at[i];
  }
  const CountUp<V> source{V::load(first), V::set(static_cast<uint64_t>(at.stride * V::kLanes))};
  shuffle_all<V>(s, source, at.count, out);
}

template <class V>
FS_TARGET void shuffle_array_back(const Shuffle& s, int64_t count, int64_t* numbers) {
  shuffle_all<V>(s, InPlace<V>{}, count, numbers);
}

#undef FS_EACH_GROUP

}  // namespace
}  // namespace fastseed
