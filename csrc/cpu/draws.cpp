// Cuts a draw into rows, runs and whole blocks, for the loops of the instruction set in use.
#include "../core/draw.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kChunk = 512;    // blocks at a time: their words and values stay in the cache
constexpr int64_t kWide = 16;      // blocks that a vector loop converts at once, or a multiple
constexpr int64_t kFewBlocks = 2;  // not worth a vector
constexpr int64_t kShortRow = 8;   // blocks; streams that give no more are drawn side by side
static_assert(kSideBySide * kShortRow <= kChunk, "their words have to fit");

struct BlockWords {
  alignas(64) uint32_t w[4 * kChunk];

  // How many blocks to convert for the sake of these: vector loops are best without a rest.
  template <class D>
  int64_t widen(int64_t blocks) {
    const int64_t rest = kRetries<D> ? 0 : -blocks & (kWide - 1);
    std::memset(w + 4 * blocks, 0, static_cast<size_t>(rest) * 16);
    return blocks + rest;
  }
};

// Values first to last - 1 of the draw of `key` that begins at block `begin` of its stream.
template <class D>
void draw_run(const D& distribution, const CpuPath& path, Key key, uint64_t begin, int64_t first,
              int64_t last, typename D::Value* out) {
  constexpr int64_t kEach = 4 / D::kWords;
  const int64_t end = (last + kEach - 1) / kEach;
  const Convert<D> convert = std::get<Convert<D>>(path.draws);
  BlockWords words;
  typename D::Value values[kEach * kChunk];
  for (int64_t block = first / kEach; block < end; block += kChunk) {
    const int64_t blocks = std::min(end - block, kChunk);
    const uint64_t from_block = begin + static_cast<uint64_t>(block);
    const int64_t from = std::max(first, block * kEach);
    const int64_t to = std::min(last, (block + blocks) * kEach);
    if (blocks <= kFewBlocks) {
      for (int64_t b = 0; b < blocks; ++b) {
        const uint64_t at = from_block + static_cast<uint64_t>(b);
        typename D::Value made[kEach];
        distribution(Drawn{draw_block(key, at), key, at}, made);
        std::memcpy(values + kEach * b, made, sizeof(made));
      }
    } else {
      fill_words(path, key, from_block, blocks, words.w);
      if (to - from == blocks * kEach && blocks % kWide == 0) {
        convert(distribution, key, from_block, words.w, blocks, out + (from - first));
        continue;
      }
      convert(distribution, key, from_block, words.w, words.widen<D>(blocks), values);
    }
    std::memcpy(out + (from - first), values + (from - block * kEach),
                static_cast<size_t>(to - from) * sizeof(*out));
  }
}

Key key_of(const Streams& streams, int64_t row) {
  return Key{streams.keys[2 * row], streams.keys[2 * row + 1]};
}

uint64_t block_of(const Streams& streams, int64_t row) {
  return streams.positions == nullptr ? 0
                                      : first_block(static_cast<uint64_t>(streams.positions[row]));
}

// Whole rows of few blocks, `length` values from block `skip` of each draw on.
template <class D>
void draw_rows(const D& distribution, const CpuPath& path, const Streams& streams, uint64_t skip,
               int64_t length, int64_t first, int64_t last, typename D::Value* out) {
  constexpr int64_t kEach = 4 / D::kWords;
  const int64_t per_row = (length + kEach - 1) / kEach;
  const Convert<D> convert = std::get<Convert<D>>(path.draws);
  BlockWords words;
  typename D::Value values[kEach * kChunk];
  for (int64_t row = first; row < last; row += kSideBySide) {
    const int64_t rows = std::min(last - row, kSideBySide);
    uint64_t firsts[kSideBySide];
    for (int64_t r = 0; r < rows; ++r) {
      firsts[r] = block_of(streams, row + r) + skip;
    }
    std::get<RowWords>(path.draws)(streams.keys + 2 * row, firsts, rows, per_row, words.w);
    typename D::Value* to = out + (row - first) * length;
    const bool whole = per_row * kEach == length;
    typename D::Value* made = whole ? to : values;
    // As if of one stream: right unless a word was rejected, which only narrow integers say.
    constexpr bool each = kRetries<D> && D::kWords == 2;
    if (each || !convert(distribution, Key{0, 0}, 0, words.w, rows * per_row, made)) {
      for (int64_t r = 0; r < rows; ++r) {
        convert(distribution, key_of(streams, row + r), firsts[r], words.w + 4 * r * per_row,
                per_row, made + r * per_row * kEach);
      }
    }
    for (int64_t r = 0; r < rows && !whole; ++r) {
      for (int64_t i = 0; i < length; ++i) {
        to[r * length + i] = values[r * per_row * kEach + i];
      }
    }
  }
}

}  // namespace

template <class D>
void launch_draw(const D& distribution, const Streams& streams, const Layout& layout,
                 typename D::Value* out, Range part) {
  constexpr int64_t kEach = 4 / D::kWords;
  const CpuPath& path = cpu_path();
  const bool short_rows = layout.runs == 1 && layout.offset % kEach == 0 &&
                          layout.length <= kShortRow * kEach && streams.count > 1;
  for (int64_t at = part.begin; at < part.end;) {
    const int64_t run = at / layout.length;
    const int64_t skip = at % layout.length;
    const int64_t whole_rows = (part.end - at) / layout.length;
    if (short_rows && skip == 0 && whole_rows > 1) {
      draw_rows(distribution, path, streams, static_cast<uint64_t>(layout.offset / kEach),
                layout.length, run, run + whole_rows, out + at);
      at += whole_rows * layout.length;
      continue;
    }
    const int64_t row = run / layout.runs;
    const int64_t count = std::min(part.end - at, layout.length - skip);
    const int64_t first = layout.start(run % layout.runs) + skip;
    draw_run(distribution, path, key_of(streams, row), block_of(streams, row), first, first + count,
             out + at);
    at += count;
  }
}

#define FS_INSTANTIATE(D) \
  template void launch_draw<D>(const D&, const Streams&, const Layout&, D::Value*, Range);
FS_EACH_DISTRIBUTION(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
