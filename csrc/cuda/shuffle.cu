// The order of an epoch, and its inverse, on CUDA devices: integers alone, two a thread at a time.
#include "../core/draw.h"
#include "../core/shuffle.h"
#include "device.cuh"

namespace fastseed {
namespace {

// i / b of i < 2^48 and b in [4, 2^24] (Granlund and Montgomery, 1994): the factor is 2^(64 +
// shift) / b rounded up, so that the result is less than 2^-(16 + shift) too great, and that is
// below 1 / b.
struct LongDivider {
  uint64_t factor;
  uint32_t shift = 0;

  explicit LongDivider(uint32_t b) {
    while ((uint64_t{2} << shift) < b) {
      ++shift;
    }
    const uint64_t power = uint64_t{1} << (shift + 32);  // in two steps of 32 bits
    const uint64_t high = power / b;
    factor = (high << 32) + ((power % b << 32) + b - 1) / b;
  }

  FS_DEVICE uint32_t quotient(uint64_t i) const {
    return static_cast<uint32_t>(multiply_high(i, factor) >> shift);
  }
};

// Where a number stands in the rectangle.
struct Cell {
  uint32_t left, right;
};

struct ShuffleRounds {
  ShuffleKeys keys;
  LongDivider divider;
  uint32_t a, b;
  int rounds;

  explicit ShuffleRounds(const Shuffle& s)
      : keys(s), divider(s.b), a(s.a), b(s.b), rounds(s.rounds) {}

  FS_DEVICE Cell cell(int64_t i) const {
    const uint32_t left = divider.quotient(static_cast<uint64_t>(i));
    return Cell{left, static_cast<uint32_t>(i) - left * b};
  }

  FS_DEVICE int64_t number(Cell c) const {
    return static_cast<int64_t>(static_cast<uint64_t>(c.left) * b + c.right);
  }

  // scaled(block of `from` in Feistel round r, m)
  FS_DEVICE uint32_t step(int r, uint32_t from, uint32_t m) const {
    FoldedBlock<OneWord> block[1] = {{from, 0, 0, 0}};
    folded_rounds(keys.folded, keys.second[r], keys.third[r], block);
    folded_last<false>(keys.folded, block[0]);
    return scaled(block[0].w0, block[0].w1, m);
  }

  // Feistel round r, of several cells side by side.
  template <Way kWay, int kCells>
  FS_DEVICE void move_rows(int r, Cell (&c)[kCells]) const {
#pragma unroll
    for (int k = 0; k < kCells; ++k) {
      c[k].left = move_mod<kWay>(c[k].left, step(r, c[k].right, a), a);
    }
  }

  template <Way kWay, int kCells>
  FS_DEVICE void move_columns(int r, Cell (&c)[kCells]) const {
#pragma unroll
    for (int k = 0; k < kCells; ++k) {
      c[k].right = move_mod<kWay>(c[k].right, step(r, c[k].left, b), b);
    }
  }

  // All rounds.
  template <Way kWay, int kCells>
  FS_DEVICE void run(Cell (&c)[kCells]) const {
#pragma unroll 1
    for (int r = 0; r < rounds; r += 2) {
      if (kWay == Way::kForward) {
        move_rows<kWay>(r, c);
        move_columns<kWay>(r + 1, c);
      } else {
        move_columns<kWay>(rounds - 1 - r, c);
        move_rows<kWay>(rounds - 2 - r, c);
      }
    }
  }

  // The numbers below n at which the walks from these cells end.
  template <Way kWay, int kCells>
  FS_DEVICE void walk(Cell (&c)[kCells], int64_t n, int64_t (&found)[kCells]) const {
#pragma unroll
    for (int k = 0; k < kCells; ++k) {
      found[k] = n;
    }
    bool more = true;
#pragma unroll 1
    while (more) {
      run<kWay>(c);
      more = false;
#pragma unroll
      for (int k = 0; k < kCells; ++k) {  // one that has arrived walks on with the others, unread
        found[k] = found[k] < n ? found[k] : number(c[k]);
        more = more || found[k] >= n;
      }
    }
  }
};

// Positions of the order, of which each is inside.
struct Forward {
  static constexpr Way kWay = Way::kForward;
  Positions at;

  FS_DEVICE int64_t load(int64_t k, int64_t) const {
    return at[k];
  }
  FS_DEVICE int64_t result(int64_t, int64_t found, int64_t) const {
    return found;
  }
};

// Numbers of an array. In place of one outside of [0, n) another is walked from, unread.
struct Backward {
  static constexpr Way kWay = Way::kBackward;
  const int64_t* numbers;

  FS_DEVICE bool is_inside(int64_t k, int64_t n) const {
    return static_cast<uint64_t>(numbers[k]) < static_cast<uint64_t>(n);
  }
  FS_DEVICE int64_t load(int64_t k, int64_t n) const {
    return is_inside(k, n) ? numbers[k] : 0;
  }
  FS_DEVICE int64_t result(int64_t k, int64_t found, int64_t n) const {
    return is_inside(k, n) ? found : -1;
  }
};

template <class Source>
struct ShuffleBody {
  static constexpr int kMinBlocks = 6;
  ShuffleRounds rounds;
  Source source;
  int64_t n;
  Tiles tiles;
  int64_t* out;

  // The results from k on.
  template <int kCells>
  FS_DEVICE void walk(int64_t k, uint64_t (&results)[kCells]) const {
    Cell cells[kCells];
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      cells[i] = rounds.cell(source.load(k + i, n));
    }
    int64_t found[kCells];
    rounds.walk<Source::kWay>(cells, n, found);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      results[i] = static_cast<uint64_t>(source.result(k + i, found[i], n));
    }
  }

  FS_DEVICE void operator()(ThreadIndex at) const {
    auto* to = reinterpret_cast<uint64_t*>(out);
    const auto two = [&](int64_t tile) {
      const int64_t k = tile + 2 * at.thread;
      uint64_t results[2];
      walk(k, results);
      store(to + k, results[0], results[1]);
    };
    tiles.each(at, two, [&](int64_t k) {
      uint64_t results[1];
      walk(k, results);
      store(to + k, results[0]);
    });
  }
};

template <class Source>
void launch_source(const Shuffle& shuffle, const Source& source, int64_t count, int64_t* out,
                   const char* op, CudaStream cuda) {
  const Tiles tiles(count, out);
  launch(ShuffleBody<Source>{ShuffleRounds(shuffle), source, shuffle.n, tiles, out}, tiles.blocks(),
         op, cuda);
}

}  // namespace

void launch_shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out, CudaStream cuda) {
  launch_source(shuffle, Forward{at}, at.count, out, "shuffle", cuda);
}

void launch_shuffle_positions(const Shuffle& shuffle, const int64_t* numbers, int64_t count,
                              int64_t* out, CudaStream cuda) {
  launch_source(shuffle, Backward{numbers}, count, out, "shuffle_positions", cuda);
}

}  // namespace fastseed
