// Keys and seeds of consecutive indices, on CUDA devices.
//
// Launches are cut where the upper half of the index changes (every 2^32), so that the blocks of
// one launch have counters that differ in the first word alone. Then the rounds up to the third are
// partly the same for all of them: 3 of the 20 products (4 where only the low half of a block is
// wanted) are made once, on the host where the scope is known there. Where it is in the device's
// memory, the level of the name is computed once a block of threads.
#include "../core/derive.h"
#include "../core/folded_philox.h"
#include "device.cuh"

namespace fastseed {
namespace {

// The block of the counter (w0, w1, w2, w3); `hi` is 0 unless kBoth.
template <bool kBoth>
FS_DEVICE Key folded_block(const FoldedKeys& k, uint32_t w0) {
  FoldedBlock<OneWord> block[1] = {{w0, 0, 0, 0}};
  folded_rounds(k, k.k1[1], k.k1[2], block);
  folded_last<kBoth>(k, block[0]);
  const Block b{{block[0].w0, block[0].w1, block[0].w2, block[0].w3}};
  return Key{b.lo(), kBoth ? b.hi() : 0};
}

// ---------------------------------------------------------------- where keys come from
// Every thread calls `open` once; what it returns makes the key of an index from its lower half.

struct FromValue {
  FoldedKeys keys;
  uint32_t tweak;

  FromValue(const Stream& s, uint64_t start)
      : keys(s.name.key, static_cast<uint32_t>((start ^ s.name.tweak) >> 32), s.rank_word,
             s.worker),
        tweak(static_cast<uint32_t>(s.name.tweak)) {}

  FS_DEVICE const FromValue& open() const {
    return *this;
  }
  template <bool kBoth>
  FS_DEVICE Key key(uint32_t low) const {
    return folded_block<kBoth>(keys, low ^ tweak);
  }
};

struct FromMemory {
  StreamAt stream;
  uint64_t high;  // the upper half of every index, in its place

  FromMemory(const StreamAt& s, uint64_t start) : stream(s), high(start >> 32 << 32) {}

  struct Open {
    Stream stream;
    uint64_t high;

    template <bool kBoth>
    FS_DEVICE Key key(uint32_t low) const {
      return stream_key(stream, high | low);
    }
  };

  FS_DEVICE Open open() const {
    const NameKey name = once_per_block<NameKey>([&] {
      return name_key(ScopeKey{load(stream.scope), load(stream.scope + 1)}, stream.name);
    });
    return Open{Stream{name, stream.rank_word, stream.worker}, high};
  }
};

// ---------------------------------------------------------------- kernels

struct DeriveSeeds {
  static constexpr int kMinBlocks = 8;
  FromValue source;
  uint32_t first;
  Tiles tiles;
  uint64_t* out;

  FS_DEVICE void operator()(ThreadIndex at) const {
    const auto two = [&](int64_t tile) {
      const int64_t i = tile + 2 * at.thread;
      const uint32_t low = first + static_cast<uint32_t>(i);
      store(out + i, source.key<false>(low).lo, source.key<false>(low + 1).lo);
    };
    tiles.each(at, two, [&](int64_t i) {
      store(out + i, source.key<false>(first + static_cast<uint32_t>(i)).lo);
    });
  }
};

// With `positions`, which become 0, or without.
template <class Source, bool kPositions>
struct DeriveKeys {
  static constexpr int kMinBlocks = 8;
  Source source;
  uint32_t first;
  Tiles tiles;
  uint64_t* out;
  uint64_t* positions;

  FS_DEVICE void operator()(ThreadIndex at) const {
    const auto& from = source.open();
    const auto two = [&](int64_t tile) {
      const int64_t i = tile + at.thread;
      const uint32_t low = first + static_cast<uint32_t>(i);
      const Key a = from.template key<true>(low);
      const Key b = from.template key<true>(low + kThreads);
      store(out + 2 * i, a.lo, a.hi);
      store(out + 2 * (i + kThreads), b.lo, b.hi);
      if (kPositions) {
        store(positions + tile + 2 * at.thread, 0, 0);
      }
    };
    tiles.each(at, two, [&](int64_t i) {
      const Key key = from.template key<true>(first + static_cast<uint32_t>(i));
      store(out + 2 * i, key.lo);
      store(out + 2 * i + 1, key.hi);
      if (kPositions) {
        store(positions + i, 0);
      }
    });
  }
};

struct ReseedFrom {
  static constexpr int kMinBlocks = 8;
  const uint64_t* seeds;
  const int64_t* indices;
  Name name;
  int64_t n;
  uint64_t* keys;
  int64_t* positions;
  bool aligned;

  FS_DEVICE void operator()(ThreadIndex at) const {
    each_index(at, n, [&](int64_t i) {
      const uint64_t index =
          indices == nullptr ? 0 : load(reinterpret_cast<const uint64_t*>(indices) + i);
      const Key key = key_of_seed(load(seeds + i), name, index);
      if (aligned) {
        store(keys + 2 * i, key.lo, key.hi);
      } else {
        store(keys + 2 * i, key.lo);
        store(keys + 2 * i + 1, key.hi);
      }
      store(reinterpret_cast<uint64_t*>(positions) + i, 0);
    });
  }
};

// ---------------------------------------------------------------- host

// f(start of a part, its first index from `start` on, how many) for the parts between multiples of
// 2^32 of the index.
template <class F>
void each_part(uint64_t start, int64_t n, const F& f) {
  for (int64_t done = 0; done < n;) {
    const uint64_t first = start + static_cast<uint64_t>(done);
    const int64_t count = same_upper_half(first, n - done);
    f(first, done, count);
    done += count;
  }
}

template <class Source, bool kPositions, class S>
void derive_keys(const S& stream, uint64_t start, int64_t n, uint64_t* out, int64_t* positions,
                 const char* op, CudaStream cuda) {
  each_part(start, n, [&](uint64_t first, int64_t at, int64_t count) {
    auto* zeros = kPositions ? reinterpret_cast<uint64_t*>(positions + at) : nullptr;
    const Tiles tiles(count, is_aligned(out, kVectorBytes) && is_aligned(zeros, kVectorBytes));
    launch(DeriveKeys<Source, kPositions>{Source(stream, first), static_cast<uint32_t>(first),
                                          tiles, out + 2 * at, zeros},
           tiles.blocks(), op, cuda);
  });
}

}  // namespace

void launch_derive_keys(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                        CudaStream cuda) {
  derive_keys<FromValue, false>(stream, start, n, out, nullptr, "derive_keys", cuda);
}

void launch_derive_seeds(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                         CudaStream cuda) {
  each_part(start, n, [&](uint64_t first, int64_t at, int64_t count) {
    const Tiles tiles(count, out + at);
    launch(DeriveSeeds{FromValue(stream, first), static_cast<uint32_t>(first), tiles, out + at},
           tiles.blocks(), "derive_seeds", cuda);
  });
}

void launch_reseed(const Stream& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, CudaStream cuda) {
  derive_keys<FromValue, true>(stream, start, n, keys, positions, "reseed_streams", cuda);
}

void launch_reseed(const StreamAt& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, CudaStream cuda) {
  derive_keys<FromMemory, true>(stream, start, n, keys, positions, "reseed_streams_at", cuda);
}

void launch_reseed_from(const uint64_t* seeds, const int64_t* indices, const Name& name, int64_t n,
                        uint64_t* keys, int64_t* positions, CudaStream cuda) {
  launch(ReseedFrom{seeds, indices, name, n, keys, positions, is_aligned(keys, kVectorBytes)},
         (n + kThreads - 1) / kThreads, "reseed_streams_from", cuda);
}

}  // namespace fastseed
