// Plain C++: for every CPU, and what the other paths are compared with.
#include <algorithm>
#include <cstring>

#include "../core/mt19937.h"
#include "dispatch.h"

#define FS_PATH kPortablePath
#define FS_TARGET

namespace fastseed {
namespace {

Key block_at(const BlockRange& range, int64_t i) {
  const Stream stream{{range.key, range.tweak}, range.w2, range.w3};
  return stream_key(stream, range.start + static_cast<uint64_t>(i));
}

constexpr const char* kName = "portable";
constexpr int kInitWidth = 1;

bool supported() {
  return true;
}

void derive_seeds(const BlockRange& range, int64_t n, uint64_t* out, Stores) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = block_at(range, i).lo;
  }
}

void derive_keys(const BlockRange& range, int64_t n, uint64_t* out, Stores) {
  for (int64_t i = 0; i < n; ++i) {
    const Key r = block_at(range, i);
    const uint64_t words[] = {r.lo, r.hi};
    std::memcpy(out + 2 * i, words, sizeof(words));
  }
}

void keys_of_seeds(const uint64_t* seeds, const int64_t* indices, const Name& name, int64_t n,
                   uint64_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t index = indices == nullptr ? 0 : static_cast<uint64_t>(indices[i]);
    const Key key = key_of_seed(seeds[i], name, index);
    out[2 * i] = key.lo;
    out[2 * i + 1] = key.hi;
  }
}

void init_states(const uint32_t* seeds, uint32_t* const* states, uint32_t* const*) {
  mt19937_init(seeds[0], states[0]);
}

// Side by side, since each is one long chain of dependent steps.
constexpr int kShuffleGroup = 8;

template <Way kWay>
void shuffle_side(const Shuffle& s, int round, int m, const uint32_t* from, uint32_t* to) {
  const uint32_t side = round % 2 == 0 ? s.a : s.b;
  for (int g = 0; g < m; ++g) {
    to[g] = shuffle_step<kWay>(s, round, from[g], to[g], side);
  }
}

template <Way kWay>
void shuffle_group(const Shuffle& s, int m, int64_t* x) {
  uint32_t left[kShuffleGroup], right[kShuffleGroup];
  for (int g = 0; g < m; ++g) {
    left[g] = static_cast<uint32_t>(x[g] / s.b);
    right[g] = static_cast<uint32_t>(x[g] % s.b);
  }
  for (int r = 0; r < s.rounds; r += 2) {
    if (kWay == Way::kForward) {
      shuffle_side<kWay>(s, r, m, right, left);
      shuffle_side<kWay>(s, r + 1, m, left, right);
    } else {
      shuffle_side<kWay>(s, s.rounds - 1 - r, m, left, right);
      shuffle_side<kWay>(s, s.rounds - 2 - r, m, right, left);
    }
  }
  for (int g = 0; g < m; ++g) {
    x[g] = shuffle_walk<kWay>(s, static_cast<int64_t>(left[g]) * s.b + right[g]);
  }
}

void shuffle(const Shuffle& s, const Positions& at, int64_t* out) {
  for (int64_t k = 0; k < at.count; k += kShuffleGroup) {
    const int m = static_cast<int>(std::min<int64_t>(at.count - k, kShuffleGroup));
    for (int g = 0; g < m; ++g) {
      out[k + g] = at[k + g];
    }
    shuffle_group<Way::kForward>(s, m, out + k);
  }
}

void shuffle_positions(const Shuffle& s, int64_t count, int64_t* numbers) {
  for (int64_t k = 0; k < count; k += kShuffleGroup) {
    const int m = static_cast<int>(std::min<int64_t>(count - k, kShuffleGroup));
    shuffle_group<Way::kBackward>(s, m, numbers + k);
  }
}

void digest(uint64_t key, uint64_t group_number, const uint8_t* bytes, int64_t groups,
            uint64_t* total) {
  for (int64_t at = 0; at < groups; at += kMaxGroupsPerSum) {
    const int64_t end = std::min(groups, at + kMaxGroupsPerSum);
    WordSums sums = {};
    for (int64_t i = at; i < end; ++i) {
      const uint64_t here = group_number + static_cast<uint64_t>(i);
      Block block;
      std::memcpy(block.w, bytes + 16 * i, sizeof(block.w));
      const Block r = digest_group(key, here, block);
      for (int k = 0; k < 4; ++k) {
        sums.w[k] += r.w[k];
      }
    }
    fold_sums(sums, total);
  }
}

}  // namespace
}  // namespace fastseed

#include "path.h"
