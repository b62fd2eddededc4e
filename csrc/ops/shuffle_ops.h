// The operators of the order of an epoch and its inverse, for any device: a Device gives the
// launches.
#pragma once
#include "../core/shuffle.h"
#include "tensor_checks.h"

namespace fastseed {

// Integers of a schema are signed 64-bit; the key's halves are unsigned: same bits.
inline Shuffle checked_shuffle(int64_t lo, int64_t hi, int64_t n, const char* op) {
  STD_TORCH_CHECK(n >= 1 && n <= kShuffleMost, "fastseed.", op, ": n must be in [1, 2**48], got ",
                  n);
  return shuffle_of(Key{static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)}, n);
}

template <class Device>
void shuffle(const Tensor& out, int64_t lo, int64_t hi, int64_t n, int64_t start, int64_t stride) {
  constexpr const char* kOp = "shuffle";
  check_tensor(out, kOp, "out", Dtype::Long, {kAnySize}, out);
  const Shuffle order = checked_shuffle(lo, hi, n, kOp);
  const int64_t count = out.size(0);
  STD_TORCH_CHECK(start >= 0 && start <= n, "fastseed.shuffle: start must be in [0, ", n, "], got ",
                  start);
  STD_TORCH_CHECK(stride >= 1 && stride <= kShuffleMost,
                  "fastseed.shuffle: stride must be in [1, 2**48], got ", stride);
  STD_TORCH_CHECK(count <= (n - start + stride - 1) / stride,
                  "fastseed.shuffle: out must be of no more elements than there are positions from "
                  "start below n, got ",
                  count);
  mark_written(out);
  Device::shuffle(order, Positions{start, stride, count}, out);
}

template <class Device>
void shuffle_positions(const Tensor& out, const Tensor& samples, int64_t lo, int64_t hi,
                       int64_t n) {
  constexpr const char* kOp = "shuffle_positions";
  check_tensor(out, kOp, "out", Dtype::Long, {kAnySize}, out);
  check_tensor(samples, kOp, "samples", Dtype::Long, {out.size(0)}, out);
  check_disjoint(out, samples, kOp, "samples");
  const Shuffle order = checked_shuffle(lo, hi, n, kOp);
  mark_written(out);
  Device::shuffle_positions(order, longs_of(samples), out);
}

}  // namespace fastseed

#define FS_REGISTER_SHUFFLE(m, Device)                        \
  (m).impl("shuffle", TORCH_BOX(&fastseed::shuffle<Device>)); \
  (m).impl("shuffle_positions", TORCH_BOX(&fastseed::shuffle_positions<Device>))
