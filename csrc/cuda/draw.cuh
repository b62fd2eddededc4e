// Draws on CUDA devices, for every distribution of core/draw.h.
//
// Three kernels, all with a thread for a few Philox blocks:
//   OneLine    a long contiguous draw of one stream: the key is loaded once a thread
//   ManyLines  a contiguous draw of each of many streams
//   AnyLayout  everything else: parts of logical tensors, rows that 16-byte stores do not fit
// The first two begin at a whole block and write 16 bytes at a time. Which one runs is a matter of
// speed: all of them write the same bits.
#pragma once
#include "../core/draw.h"
#include "device.cuh"
#include "strided_layout.cuh"

namespace fastseed {

// What one thread writes at a time, on the paths that write 16 bytes at once.
template <class D>
struct Chunk {
  using Value = typename D::Value;
  static constexpr int kBlockValues = 4 / D::kWords;
  static constexpr int kBlockBytes = kBlockValues * static_cast<int>(sizeof(Value));
  static constexpr int kBlocks = kBlockBytes < kVectorBytes ? kVectorBytes / kBlockBytes : 1;
  static constexpr int kValues = kBlocks * kBlockValues;
  // two Philox blocks a thread, whose chains of products run side by side
  static constexpr int kPerThread = kBlocks > 1 ? 1 : 2;
  static constexpr int64_t kTile = int64_t{kThreads} * kPerThread;
};

// draw_block of kCount blocks, `step` apart. Round by round for all of them: their chains of
// products run side by side, and share the round keys while these are in registers.
template <int kCount>
FS_DEVICE void draw_words(Key key, uint64_t block, uint64_t step, Block (&out)[kCount]) {
#pragma unroll
  for (int b = 0; b < kCount; ++b) {
    const uint64_t at = block + step * static_cast<uint64_t>(b);
    out[b] = Block{{low_word(at), low_word(at >> 32), low_word(key.hi), low_word(key.hi >> 32)}};
  }
  uint32_t k0 = static_cast<uint32_t>(key.lo);
  uint32_t k1 = static_cast<uint32_t>(key.lo >> 32);
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma unroll
    for (int b = 0; b < kCount; ++b) {
      out[b] = philox_round(out[b], k0, k1);
    }
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
}

// The values in a block of words.
template <class D, class Values>
FS_DEVICE void convert(const D& distribution, const Drawn& drawn, Values& out, int begin) {
  constexpr int kEach = 4 / D::kWords;
  typename D::Value values[kEach];
  distribution(drawn, values);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    out[begin + i] = values[i];
  }
}

// The first `count` of kChunks chunks, `apart` values from each other, whose words are those of
// blocks `step` apart.
template <class D, int kChunks>
FS_DEVICE void store_chunks(const D& distribution, Key key, uint64_t block, uint64_t step,
                            const Block (&words)[kChunks * Chunk<D>::kBlocks],
                            typename D::Value* to, int64_t apart, int count) {
  using C = Chunk<D>;
#pragma unroll
  for (int k = 0; k < kChunks; ++k) {
    typename D::Value values[C::kValues];
#pragma unroll
    for (int b = 0; b < C::kBlocks; ++b) {
      const uint64_t from = block + step * static_cast<uint64_t>(k + b);
      convert(distribution, Drawn{words[k + b], key, from}, values, b * C::kBlockValues);
    }
    if (k < count) {
      store_all(to + k * apart, values);
    }
  }
}

FS_DEVICE Key key_of(const Streams& streams, int64_t row) {
  return Key{load(streams.keys + 2 * row), load(streams.keys + 2 * row + 1)};
}

FS_DEVICE uint64_t block_of(const Streams& streams, int64_t row) {
  return streams.positions == nullptr
             ? 0
             : first_block(load(reinterpret_cast<const uint64_t*>(streams.positions) + row));
}

// ---------------------------------------------------------------- one stream, one run

template <class D>
struct OneLine {
  using C = Chunk<D>;
  static constexpr int kMinBlocks = D::kResident;
  D distribution;
  Streams streams;  // the first of them
  uint64_t first;   // the block of the draw that the output begins in
  int64_t tiles;
  int64_t length;
  typename D::Value* out;

  FS_DEVICE void operator()(ThreadIndex at) const {
    constexpr uint64_t kStep = C::kPerThread == 1 ? 1 : kThreads;
    const Key key = key_of(streams, 0);
    const uint64_t begin = block_of(streams, 0) + first;
    const int64_t chunk = at.block * C::kTile + at.thread;
    uint64_t block = begin + static_cast<uint64_t>(chunk) * C::kBlocks;
    typename D::Value* to = out + chunk * C::kValues;
    typename D::Value* const end = out + tiles * C::kTile * C::kValues;
#pragma unroll 1
    for (; to < end; to += at.blocks * (C::kTile * C::kValues)) {
      Block words[C::kPerThread * C::kBlocks];
      draw_words(key, block, kStep, words);
      store_chunks<D, C::kPerThread>(distribution, key, block, kStep, words, to,
                                     kThreads * C::kValues, C::kPerThread);
      block += at.blocks * static_cast<uint64_t>(C::kTile * C::kBlocks);
    }
    // Less than a tile is left, by blocks that are still short of one.
    const int64_t blocks = (length + C::kBlockValues - 1) / C::kBlockValues;
#pragma unroll 1
    for (int64_t b = tiles * C::kTile * C::kBlocks + int64_t{at.block} * kThreads + at.thread;
         b < blocks; b += int64_t{at.blocks} * kThreads) {
      const uint64_t from = begin + static_cast<uint64_t>(b);
      typename D::Value values[C::kBlockValues];
      distribution(Drawn{draw_block(key, from), key, from}, values);
#pragma unroll
      for (int i = 0; i < C::kBlockValues; ++i) {
        if (b * C::kBlockValues + i < length) {
          store_value(out + b * C::kBlockValues + i, values[i]);
        }
      }
    }
  }
};

// ---------------------------------------------------------------- many streams, one run of each

template <class D>
struct ManyLines {
  using C = Chunk<D>;
  static constexpr int kMinBlocks = D::kResident;
  D distribution;
  Streams streams;
  uint64_t first;
  uint32_t items;     // of all lines together: one is kPerThread chunks of a line
  uint32_t per_line;  // items of a line: its first chunks, and those that lie so many behind them
  uint32_t chunks;    // of a line
  Divider line_of;
  typename D::Value* out;

  FS_DEVICE void operator()(ThreadIndex at) const {
#pragma unroll 1
    for (uint32_t item = at.block * kThreads + at.thread; item < items;
         item += at.blocks * kThreads) {
      const uint32_t line = line_of.quotient(item);
      const uint32_t chunk = item - line * per_line;
      const Key key = key_of(streams, line);
      const uint64_t block = block_of(streams, line) + first + uint64_t{chunk} * C::kBlocks;
      const uint64_t step = C::kPerThread == 1 ? 1 : per_line;
      Block words[C::kPerThread * C::kBlocks];
      draw_words(key, block, step, words);
      typename D::Value* to = out + (int64_t{line} * (chunks - per_line) + item) * C::kValues;
      const bool all = C::kPerThread == 1 || chunk + per_line < chunks;
      store_chunks<D, C::kPerThread>(distribution, key, block, step, words, to,
                                     int64_t{per_line} * C::kValues, all ? C::kPerThread : 1);
    }
  }
};

// ---------------------------------------------------------------- any layout

template <class D>
struct AnyLayout {
  static constexpr int kMinBlocks = D::kResident < 6 ? D::kResident : 6;
  static constexpr int kEach = Chunk<D>::kBlockValues;
  D distribution;
  Streams streams;
  typename D::Value* out;

  struct Row {
    int64_t row;
    uint64_t first;
  };

  FS_DEVICE Row open(int64_t row) const {
    return Row{row, 0};
  }

  FS_DEVICE void write(const Row& row, uint64_t block, int64_t at, Inside inside) const {
    const Key key = key_of(streams, row.row);
    const uint64_t drawn = block_of(streams, row.row) + block;
    typename D::Value values[kEach];
    distribution(Drawn{draw_block(key, drawn), key, drawn}, values);
    constexpr int kBytes = Chunk<D>::kBlockBytes;
    constexpr int kAlign = kBytes < kVectorBytes ? kBytes : kVectorBytes;
    store_inside(out + at, values, inside, inside.all(kEach, out + at, kAlign));
  }
};

// ---------------------------------------------------------------- host

inline Streams from_row(const Streams& streams, int64_t row, int64_t count) {
  return Streams{streams.keys + 2 * row,
                 streams.positions == nullptr ? nullptr : streams.positions + row, count};
}

template <class D>
void launch_one_line(const D& distribution, const Streams& streams, const Layout& layout,
                     typename D::Value* out, CudaStream cuda) {
  using C = Chunk<D>;
  const int64_t tiles = layout.length / (C::kTile * C::kValues);
  const int64_t rest = layout.length - tiles * C::kTile * C::kValues;
  launch(OneLine<D>{distribution, streams, static_cast<uint64_t>(layout.offset / C::kBlockValues),
                    tiles, layout.length, out},
         tiles + (rest + kThreads * C::kBlockValues - 1) / (kThreads * C::kBlockValues), "draw",
         cuda);
}

// Rows of at most `most` chunks.
template <class D>
void launch_many_lines(const D& distribution, const Streams& streams, const Layout& layout,
                       typename D::Value* out, CudaStream cuda, int64_t most) {
  using C = Chunk<D>;
  const int64_t chunks = layout.length / C::kValues;
  const int64_t per_line = (chunks + C::kPerThread - 1) / C::kPerThread;
  const int64_t together = most / per_line;
  for (int64_t row = 0; row < streams.count; row += together) {
    const int64_t rows = std::min(streams.count - row, together);
    const uint32_t line = static_cast<uint32_t>(per_line);
    launch(ManyLines<D>{distribution, from_row(streams, row, rows),
                        static_cast<uint64_t>(layout.offset / C::kBlockValues),
                        static_cast<uint32_t>(rows) * line, line, static_cast<uint32_t>(chunks),
                        Divider(line), out + row * layout.length},
           (rows * per_line + kThreads - 1) / kThreads, "draw", cuda);
  }
}

// `most` is for tests: what the output is made of does not depend on it.
template <class D>
void draw_cuda(const D& distribution, const Streams& streams, const Layout& layout,
               typename D::Value* out, CudaStream cuda, int64_t most = kMostItems) {
  using C = Chunk<D>;
  if (streams.count <= 0 || layout.runs <= 0 || layout.length <= 0) {
    return;
  }
  const bool whole_blocks =
      layout.runs == 1 && layout.offset % C::kBlockValues == 0 && is_aligned(out, kVectorBytes);
  const bool whole_chunks = layout.length % C::kValues == 0;
  if (whole_blocks && streams.count > 1 && whole_chunks && layout.length / C::kValues <= most) {
    launch_many_lines(distribution, streams, layout, out, cuda, most);
  } else if (whole_blocks && (streams.count == 1 || whole_chunks)) {
    for (int64_t row = 0; row < streams.count; ++row) {
      launch_one_line(distribution, from_row(streams, row, 1), layout, out + row * layout.length,
                      cuda);
    }
  } else {
    launch_lines(AnyLayout<D>{distribution, streams, out}, layout, streams.count, "draw", cuda,
                 most);
  }
}

template <class D>
void launch_draw(const D& distribution, const Streams& streams, const Layout& layout,
                 typename D::Value* out, CudaStream cuda) {
  draw_cuda(distribution, streams, layout, out, cuda);
}

}  // namespace fastseed
