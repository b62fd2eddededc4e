// The operators of the order of an epoch and its inverse.
#pragma once
#include "../core/shuffle.h"
#include "tensor_checks.h"

namespace fastseed {

constexpr int64_t kShuffleGrain = 1 << 12;  // positions that a second thread is worth waking for

// Integers of a schema are signed 64-bit; the key's halves are unsigned: same bits.
inline Shuffle checked_shuffle(int64_t lo, int64_t hi, int64_t n, const char* op) {
  STD_TORCH_CHECK(n >= 1 && n <= kShuffleMost, "fastseed.", op, ": n must be in [1, 2**48], got ",
                  n);
  return shuffle_of(Key{static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)}, n);
}

template <class Device>
void shuffle(const Tensor& out, int64_t lo, int64_t hi, int64_t n, int64_t start, int64_t stride) {
  constexpr const char* kOp = "shuffle";
  Arguments given(kOp, out);
  auto* data = given.write<int64_t>(out, "out", {kAnySize});
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
  given.run<Device>(count, kShuffleGrain, [&](auto where) {
    launch_shuffle(order, Positions{start, stride, count}, data, where);
  });
}

template <class Device>
void shuffle_positions(const Tensor& out, const Tensor& samples, int64_t lo, int64_t hi,
                       int64_t n) {
  constexpr const char* kOp = "shuffle_positions";
  Arguments given(kOp, out);
  auto* data = given.write<int64_t>(out, "out", {kAnySize});
  const auto* numbers = given.read<int64_t>(samples, "samples", {out.size(0)});
  const Shuffle order = checked_shuffle(lo, hi, n, kOp);
  given.run<Device>(out.size(0), kShuffleGrain, [&](auto where) {
    launch_shuffle_positions(order, numbers, out.size(0), data, where);
  });
}

template <class Device>
void register_shuffle(Library& m) {
  m.impl("shuffle", TORCH_BOX(&shuffle<Device>));
  m.impl("shuffle_positions", TORCH_BOX(&shuffle_positions<Device>));
}

}  // namespace fastseed
