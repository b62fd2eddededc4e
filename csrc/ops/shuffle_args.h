// The arguments of the shuffle operator, checked once, the same for every device. Uses the stable
// ABI alone.
#pragma once
#include "../kernels/shuffle.h"
#include "tensor_checks.h"

namespace fastseed {

struct ShuffleJob {
  Shuffle shuffle;
  Positions at;
  int64_t* out;
};

// Integers of a schema are signed 64-bit; the key's halves are unsigned: same bits.
inline ShuffleJob shuffle_job(const Tensor& out, int64_t lo, int64_t hi, int64_t n, int64_t start,
                              int64_t stride) {
  check_tensor(out, "shuffle", "out", Dtype::Long, {kAnySize}, out);
  STD_TORCH_CHECK(n >= 1 && n <= kShuffleMost, "fastseed.shuffle: n must be in [1, 2**48], got ",
                  n);
  const int64_t count = out.size(0);
  STD_TORCH_CHECK(start >= 0 && start <= n, "fastseed.shuffle: start must be in [0, ", n, "], got ",
                  start);
  STD_TORCH_CHECK(stride >= 1 && stride <= kShuffleMost,
                  "fastseed.shuffle: stride must be in [1, 2**48], got ", stride);
  STD_TORCH_CHECK(count <= (n - start + stride - 1) / stride,
                  "fastseed.shuffle: out must be of no more elements than there are positions from "
                  "start below n, got ",
                  count);
  const Key key{static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)};
  return ShuffleJob{shuffle_of(key, n), Positions{start, stride, count}, longs_of(out)};
}

struct PositionsJob {
  Shuffle shuffle;
  const int64_t* numbers;
  int64_t count;
  int64_t* out;
};

inline PositionsJob positions_job(const Tensor& out, const Tensor& samples, int64_t lo, int64_t hi,
                                  int64_t n) {
  constexpr const char* kOp = "shuffle_positions";
  check_tensor(out, kOp, "out", Dtype::Long, {kAnySize}, out);
  check_tensor(samples, kOp, "samples", Dtype::Long, {out.size(0)}, out);
  check_disjoint(out, samples, kOp, "samples");
  STD_TORCH_CHECK(n >= 1 && n <= kShuffleMost, "fastseed.", kOp, ": n must be in [1, 2**48], got ",
                  n);
  const Key key{static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)};
  return PositionsJob{shuffle_of(key, n), longs_of(samples), out.size(0), longs_of(out)};
}

}  // namespace fastseed
