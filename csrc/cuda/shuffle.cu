// The order of an epoch on CUDA devices: integers alone, two positions a thread at a time.
#include "../core/draw.h"
#include "../kernels/shuffle.h"
#include "device.cuh"

namespace fastseed {
namespace {

constexpr int64_t kTile = 2 * kThreads;  // positions a block of threads takes at a time

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

  // All rounds, of several cells side by side.
  template <int kCells>
  FS_DEVICE void run(Cell (&c)[kCells]) const {
#pragma unroll 1
    for (int r = 0; r < rounds; r += 2) {
#pragma unroll
      for (int k = 0; k < kCells; ++k) {
        c[k].left = add_mod(c[k].left, step(r, c[k].right, a), a);
      }
#pragma unroll
      for (int k = 0; k < kCells; ++k) {
        c[k].right = add_mod(c[k].right, step(r + 1, c[k].left, b), b);
      }
    }
  }

  // The numbers below n at which the walks from these cells end.
  template <int kCells>
  FS_DEVICE void walk(Cell (&c)[kCells], int64_t n, int64_t (&found)[kCells]) const {
#pragma unroll
    for (int k = 0; k < kCells; ++k) {
      found[k] = n;
    }
    bool more = true;
#pragma unroll 1
    while (more) {
      run(c);
      more = false;
#pragma unroll
      for (int k = 0; k < kCells; ++k) {  // one that has arrived walks on with the others, unread
        found[k] = found[k] < n ? found[k] : number(c[k]);
        more = more || found[k] >= n;
      }
    }
  }
};

// Full tiles with 16-byte stores where the address allows them, and the rest one by one.
struct ShufflePositions {
  static constexpr int kMinBlocks = 6;
  ShuffleRounds rounds;
  Positions at;
  int64_t n;
  int64_t tiles;
  int64_t head;  // positions before the first tile
  int64_t* out;

  FS_DEVICE void operator()(Place place) const {
#pragma unroll 1
    for (int64_t tile = place.block; tile < tiles; tile += place.blocks) {
      const int64_t k = head + tile * kTile + 2 * place.thread;
      Cell cells[2] = {rounds.cell(at[k]), rounds.cell(at[k + 1])};
      int64_t found[2];
      rounds.walk(cells, n, found);
      store(reinterpret_cast<uint64_t*>(out) + k, static_cast<uint64_t>(found[0]),
            static_cast<uint64_t>(found[1]));
    }
    const int64_t rest = at.count - tiles * kTile;
#pragma unroll 1
    for (int64_t r = int64_t{place.block} * kThreads + place.thread; r < rest;
         r += int64_t{place.blocks} * kThreads) {
      const int64_t k = r < head ? r : r + tiles * kTile;
      Cell cells[1] = {rounds.cell(at[k])};
      int64_t found[1];
      rounds.walk(cells, n, found);
      store(reinterpret_cast<uint64_t*>(out) + k, static_cast<uint64_t>(found[0]));
    }
  }
};

}  // namespace

void launch_shuffle_cuda(const Shuffle& shuffle, const Positions& at, int64_t* out,
                         void* cuda_stream) {
  const int64_t head = is_aligned(out, kVectorBytes) || at.count == 0 ? 0 : 1;
  const int64_t tiles = is_aligned(out, sizeof(int64_t)) ? (at.count - head) / kTile : 0;
  const int64_t rest = at.count - tiles * kTile;
  launch(ShufflePositions{ShuffleRounds(shuffle), at, shuffle.n, tiles, head, out},
         tiles + (rest + kThreads - 1) / kThreads, "shuffle", cuda_stream);
}

}  // namespace fastseed
