// Digests on CUDA devices: all tensors of a plan in one launch, the sums of csrc/core/digest.h.
//
// Tiles of kDigestTile groups of one entry are dealt out to the blocks of threads in runs, so that
// a block has few entries and adds to few sums. Whoever adds, and in what order, changes no bit.
#include "../core/digest.h"
#include "device.cuh"

namespace fastseed {
namespace {

constexpr int kSideBySide = kDigestTile / kThreads;  // groups of a thread in a tile

FS_DEVICE void add(WordSums& sums, const Block& block) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    sums.w[k] += block.w[k];
  }
}

// low | high << 64 of `total` is added to sum[0] | sum[1] << 64. Each addition hands its own carry
// on, so that any order of any threads gives the sum.
FS_DEVICE void add_atomically(uint64_t* sum, const uint64_t* total) {
  auto* at = reinterpret_cast<unsigned long long*>(sum);
  const auto low = static_cast<unsigned long long>(total[0]);
  const unsigned long long before = atomicAdd(at, low);
  const unsigned long long carry = before + low < before ? 1 : 0;
  atomicAdd(at + 1, static_cast<unsigned long long>(total[1]) + carry);
}

// The same of all threads of a warp, by its first one; a host has no warps, and each thread adds.
FS_DEVICE void add_of_warp(uint64_t* sum, const WordSums& words, uint32_t thread) {
  uint64_t total[2] = {};
  fold_sums(words, total);
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const uint64_t low = __shfl_xor_sync(0xffffffffu, total[0], lanes);
    const uint64_t high = __shfl_xor_sync(0xffffffffu, total[1], lanes);
    total[0] += low;
    total[1] += high + (total[0] < low ? 1 : 0);
  }
  if (thread % 32 != 0) {
    return;
  }
#else
  (void)thread;
#endif
  add_atomically(sum, total);
}

FS_DEVICE Block load_vector(const uint8_t* at) {
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(at));
  return Block{{words.x, words.y, words.z, words.w}};
}

// Word k of a group of which n bytes are there; n and the address are multiples of T's size.
template <class T>
FS_DEVICE uint32_t load_word(const uint8_t* at, int k, int n) {
  constexpr int kBytes = static_cast<int>(sizeof(T));
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; i += kBytes) {
    if (4 * k + i < n) {
      const T part = __ldcs(reinterpret_cast<const T*>(at + 4 * k + i));
      word |= static_cast<uint32_t>(part) << (8 * i);
    }
  }
  return word;
}

template <class T>
FS_DEVICE Block load_words(const uint8_t* at, int n) {
  return Block{{load_word<T>(at, 0, n), load_word<T>(at, 1, n), load_word<T>(at, 2, n),
                load_word<T>(at, 3, n)}};
}

// A group of n bytes, (0, 16], and zeros behind them.
FS_DEVICE Block load_any(const uint8_t* at, int n) {
  const uint32_t unit =
      static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)) | static_cast<uint32_t>(n);
  return unit % 16 == 0  ? load_vector(at)
         : unit % 4 == 0 ? load_words<uint32_t>(at, n)
         : unit % 2 == 0 ? load_words<uint16_t>(at, n)
                         : load_words<uint8_t>(at, n);
}

struct DigestTiles {
  static constexpr int kMinBlocks = 3;
  DigestPlan plan;
  uint64_t* sums;

  FS_DEVICE void operator()(ThreadIndex at) const {
    const int64_t begin = first_of_share(plan.tiles, at.block, at.blocks);
    const int64_t end = first_of_share(plan.tiles, at.block + 1, at.blocks);
    plan.each_entry(begin, end, [&](int64_t i, const DigestEntry& entry, int64_t g, int64_t last) {
      add_of_warp(sums + 2 * i, sum(entry, g + at.thread, last), at.thread);
    });
  }

  // What one thread sums up of an entry, of the groups from g on: fewer than 2^32.
  FS_DEVICE static WordSums sum(const DigestEntry& e, int64_t g, int64_t end) {
    const DigestRows& rows = e.rows;
    const int64_t per_row = row_groups(rows.row_bytes);
    const bool dense = rows.row_bytes == 16 * per_row && rows.stride == rows.row_bytes &&
                       rows.group_stride == static_cast<uint64_t>(per_row);
    const bool vectors = is_aligned(rows.bytes, kVectorBytes) && (dense || rows.rows == 1);
    WordSums words = {};
    if (vectors) {
      const int64_t inside = dense ? end : rows.row_bytes / 16;
      const int64_t whole = inside < end ? inside : end;
      const uint8_t* bytes = rows.bytes + 16 * g;
      uint64_t key = e.key + rows.group_number + static_cast<uint64_t>(g);
#pragma unroll 1
      for (; g + (kSideBySide - 1) * kThreads < whole; g += kDigestTile) {
        Block groups[kSideBySide];
#pragma unroll
        for (int k = 0; k < kSideBySide; ++k) {
          groups[k] = load_vector(bytes + 16 * kThreads * k);
        }
#pragma unroll
        for (int k = 0; k < kSideBySide; ++k) {
          add(words, digest_group(key, static_cast<uint64_t>(k) * kThreads, groups[k]));
        }
        bytes += 16 * kDigestTile;
        key += kDigestTile;
      }
    }
#pragma unroll 1
    for (; g < end; g += kThreads) {
      const int64_t row = quotient(g, per_row), column = g - row * per_row;
      const uint64_t group_number = rows.group_number +
                                    rows.group_stride * static_cast<uint64_t>(row) +
                                    static_cast<uint64_t>(column);
      const int64_t left = rows.row_bytes - 16 * column;
      const uint8_t* bytes = rows.bytes + rows.stride * row + 16 * column;
      add(words, digest_group(e.key, group_number,
                              load_any(bytes, left < 16 ? static_cast<int>(left) : 16)));
    }
    return words;
  }

  FS_DEVICE static int64_t quotient(int64_t n, int64_t divisor) {
    if ((n | divisor) >> 32 == 0) {  // a fourth of the instructions
      return static_cast<uint32_t>(n) / static_cast<uint32_t>(divisor);
    }
    return n / divisor;
  }
};

}  // namespace

void launch_digest(const DigestPlan& plan, uint64_t* sums, CudaStream cuda) {
  launch(DigestTiles{plan, sums}, plan.tiles, "digest", cuda);
}

}  // namespace fastseed
