// The digest loop over SIMD lanes, one group a 64-bit lane, written once for every vector type.
//
// As in derive_lanes.h a word sits in the low half of its lane, and what is in the upper half does
// no harm: the multiply does not read it.
#pragma once
#include <cstdint>
#include <cstring>

#include "../core/digest.h"
#include "dispatch.h"

namespace fastseed {
namespace {

constexpr unsigned kPrefetchDistance = 8192;  // bytes; measured: 5% of what comes from memory

// kLanes * kSideBySide groups; k0 holds the low words of their keys and moves past them. `counted`
// has the bits of the lanes' words that are added.
template <class V, int kSideBySide>
FS_LANES void digest_lanes(const uint8_t* bytes, typename V::Type& k0,
                           const typename V::Type (&k1)[kDigestRounds], typename V::Type counted,
                           typename V::Type (&sums)[4]) {
  using T = typename V::Type;
  const T w0 = V::set(kPhiloxW0), step = V::set(V::kLanes);
  FoldedBlock<V> x[kSideBySide];
  T k[kSideBySide];
  _Pragma("GCC unroll 8") for (int g = 0; g < kSideBySide; ++g) {
    const uint8_t* from = bytes + 16 * V::kLanes * g;
    if (kSideBySide > 1) {  // a number, not a pointer: there may be nothing so far ahead
      const uintptr_t ahead = reinterpret_cast<uintptr_t>(from) + kPrefetchDistance;
      for (unsigned line = 0; line < 16 * V::kLanes; line += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(ahead + line));
      }
    }
    V::load_groups(from, &x[g].w0, &x[g].w2);
    x[g].w1 = V::shift_right_32(x[g].w0);
    x[g].w3 = V::shift_right_32(x[g].w2);
    k[g] = k0;
    k0 = V::add(k0, step);
  }
  _Pragma("GCC unroll 16") for (int r = 0; r < kDigestRounds; ++r) {
    _Pragma("GCC unroll 8") for (int g = 0; g < kSideBySide; ++g) {
      philox_round(x[g], k[g], k1[r]);
      k[g] = V::add(k[g], w0);
    }
  }
  _Pragma("GCC unroll 8") for (int g = 0; g < kSideBySide; ++g) {
    sums[0] = V::add(sums[0], V::bit_and(x[g].w0, counted));
    sums[1] = V::add(sums[1], V::bit_and(x[g].w1, counted));
    sums[2] = V::add(sums[2], V::bit_and(x[g].w2, counted));
    sums[3] = V::add(sums[3], V::bit_and(x[g].w3, counted));
  }
}

// Groups whose keys share their upper 32 bits.
template <class V>
FS_LANES void digest_segment(uint64_t key, const uint8_t* bytes, int64_t groups, uint64_t* total) {
  using T = typename V::Type;
  T k1[kDigestRounds];
  for (int r = 0; r < kDigestRounds; ++r) {
    k1[r] = V::set(static_cast<uint32_t>(key >> 32) + static_cast<uint32_t>(r) * kPhiloxW1);
  }
  T k0 = V::add(V::set(static_cast<uint32_t>(key)), V::order());
  T sums[4] = {V::set(0), V::set(0), V::set(0), V::set(0)};
  constexpr int64_t kStride = V::kLanes * V::kDigestGroups;
  int64_t i = 0;
  const T words = V::set(0xffffffffu);
  for (; i + kStride <= groups; i += kStride) {
    digest_lanes<V, V::kDigestGroups>(bytes + 16 * i, k0, k1, words, sums);
  }
  for (; i + V::kLanes <= groups; i += V::kLanes) {
    digest_lanes<V, 1>(bytes + 16 * i, k0, k1, words, sums);
  }
  if (i < groups) {
    uint8_t part[16 * V::kLanes] = {};
    std::memcpy(part, bytes + 16 * i, static_cast<size_t>(16 * (groups - i)));
    const T counted = V::bit_and(words, V::below(static_cast<uint32_t>(groups - i)));
    digest_lanes<V, 1>(part, k0, k1, counted, sums);
  }
  WordSums folded = {};
  for (int k = 0; k < 4; ++k) {
    uint64_t lanes[V::kLanes];
    V::store(lanes, sums[k]);
    for (const uint64_t lane : lanes) {
      folded.w[k] += lane;
    }
  }
  fold_sums(folded, total);
}

template <class V>
FS_TARGET void digest_range(uint64_t key, uint64_t group_number, const uint8_t* bytes,
                            int64_t groups, uint64_t* total) {
  for (int64_t at = 0; at < groups;) {
    const uint64_t first = key + group_number + static_cast<uint64_t>(at);
    const int64_t count = same_upper_half(first, groups - at);
    digest_segment<V>(first, bytes + 16 * at, count, total);
    at += count;
  }
}

}  // namespace
}  // namespace fastseed
