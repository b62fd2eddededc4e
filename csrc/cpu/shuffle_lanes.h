// The Feistel rounds over SIMD lanes, one position a 64-bit lane, written once for every vector
// type.
//
// As in derive_lanes.h, a word sits in the low half of its lane, and what is in the upper half does
// no harm where only a multiply reads it.
#pragma once
#include <cstdint>
#include <cstring>

#include "../kernels/shuffle.h"

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
template <class V, int kGroups>
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
    const T sum = V::add(to.v[g], high);
    to.v[g] = V::min(sum, V::subtract(sum, m));  // which has wrapped around where sum < m
  }
}

// The numbers at the positions in `x`, before any walk.
template <class V, int kGroups>
FS_LANES void shuffle_lanes(const Shuffle& s, const ShuffleLanes<V>& k, Side<V, kGroups>& x) {
  using T = typename V::Type;
  const T a = V::set(s.a), b = V::set(s.b);
  Side<V, kGroups> left, right;
  FS_EACH_GROUP {
    left.v[g] = V::quotient(x.v[g], s.b);
    right.v[g] = V::subtract(x.v[g], V::mul(left.v[g], b));
  }
  for (int r = 0; r < s.rounds; r += 2) {
    feistel<V, kGroups>(k, r, right, left, a);
    feistel<V, kGroups>(k, r + 1, left, right, b);
  }
  FS_EACH_GROUP {
    x.v[g] = V::add(V::mul(left.v[g], b), right.v[g]);
  }
}

template <class V, int kGroups>
FS_LANES void shuffle_groups(const Shuffle& s, const ShuffleLanes<V>& k, typename V::Type& position,
                             typename V::Type step, int64_t count, int64_t* out) {
  Side<V, kGroups> x;
  FS_EACH_GROUP {
    x.v[g] = position;
    position = V::add(position, step);
  }
  shuffle_lanes<V, kGroups>(s, k, x);
  bool walk = false;
  FS_EACH_GROUP {
    V::store(out + g * V::kLanes, x.v[g]);
    walk = walk || V::any_from(x.v[g], s.n);
  }
  for (int64_t i = 0; walk && i < count; ++i) {
    out[i] = shuffle_walk(s, out[i]);
  }
}

template <class V>
FS_LANES void shuffle_range(const Shuffle& s, const Positions& at, int64_t* out) {
  constexpr int64_t kStride = V::kLanes * V::kShuffleGroups;
  const ShuffleLanes<V> k{ShuffleKeys(s)};
  alignas(64) int64_t first[V::kLanes];
  for (int i = 0; i < V::kLanes; ++i) {
    first[i] = at[i];
  }
  typename V::Type position = V::load(first);
  const typename V::Type step = V::set(static_cast<uint64_t>(at.stride * V::kLanes));
  int64_t i = 0;
  for (; i + kStride <= at.count; i += kStride) {
    shuffle_groups<V, V::kShuffleGroups>(s, k, position, step, kStride, out + i);
  }
  const int64_t rest = at.count - i;
  if (rest > 0) {  // positions past the last are any numbers, and what they give is left behind
    int64_t part[kStride];
    if (rest <= V::kLanes) {
      shuffle_groups<V, 1>(s, k, position, step, rest, part);
    } else {
      shuffle_groups<V, V::kShuffleGroups>(s, k, position, step, rest, part);
    }
    std::memcpy(out + i, part, static_cast<size_t>(rest) * sizeof(int64_t));
  }
}

#undef FS_EACH_GROUP

}  // namespace
}  // namespace fastseed
