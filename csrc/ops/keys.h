// The operators that derive keys.
#pragma once
#include <optional>

#include "../core/derive.h"
#include "tensor_checks.h"

namespace fastseed {

// Words of a counter have 32 bits.
inline uint32_t checked_word(int64_t value, const char* op, const char* argument) {
  STD_TORCH_CHECK(value >= 0 && value >> 32 == 0, "fastseed.", op, ": ", argument,
                  " must be in [0, 2**32), got ", value);
  return static_cast<uint32_t>(value);
}

// Other integers of a schema are signed, the derivation's unsigned: the same 64 bits.
inline Name name_of(int64_t lo, int64_t hi) {
  return Name{static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)};
}

inline Stream stream_of(int64_t key, int64_t tweak, int64_t rank_word, int64_t worker,
                        const char* op) {
  return Stream{{static_cast<uint64_t>(key), static_cast<uint64_t>(tweak)},
                checked_word(rank_word, op, "rank_word"),
                checked_word(worker, op, "worker")};
}

// Below this a second thread costs more than it brings (about 20 microseconds of work).
constexpr int64_t kKeyGrain = 1 << 15;

// The streams of a bank, which become those of a launch.
struct Bank {
  Arguments given;
  uint64_t* keys;
  int64_t n;
  int64_t* positions;

  Bank(const Tensor& all, const Tensor& at, const char* op)
      : given(op, all),
        keys(given.write<uint64_t>(all, "keys", {kAnySize, 2})),
        n(all.size(0)),
        positions(given.write<int64_t>(at, "positions", {n})) {}
};

template <class Device>
void derive_keys(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word, int64_t worker,
                 int64_t start) {
  Arguments given("derive_keys", out);
  auto* data = given.write<uint64_t>(out, "out", {kAnySize, 2});
  const Stream stream = stream_of(key, tweak, rank_word, worker, "derive_keys");
  given.run<Device>(out.size(0), kKeyGrain, [&](auto where) {
    launch_derive_keys(stream, static_cast<uint64_t>(start), out.size(0), data, where);
  });
}

template <class Device>
void derive_seeds(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word, int64_t worker,
                  int64_t start) {
  Arguments given("derive_seeds", out);
  auto* data = given.write<uint64_t>(out, "out", {kAnySize});
  const Stream stream = stream_of(key, tweak, rank_word, worker, "derive_seeds");
  given.run<Device>(out.size(0), kKeyGrain, [&](auto where) {
    launch_derive_seeds(stream, static_cast<uint64_t>(start), out.size(0), data, where);
  });
}

template <class Device>
void reseed_streams(const Tensor& keys, const Tensor& positions, int64_t key, int64_t tweak,
                    int64_t rank_word, int64_t worker, int64_t start) {
  const Bank bank(keys, positions, "reseed_streams");
  const Stream stream = stream_of(key, tweak, rank_word, worker, "reseed_streams");
  bank.given.run<Device>(bank.n, kKeyGrain, [&](auto where) {
    launch_reseed(stream, static_cast<uint64_t>(start), bank.n, bank.keys, bank.positions, where);
  });
}

template <class Device>
void reseed_streams_at(const Tensor& keys, const Tensor& positions, const Tensor& scope,
                       int64_t name_lo, int64_t name_hi, int64_t rank_word, int64_t worker,
                       int64_t start) {
  constexpr const char* kOp = "reseed_streams_at";
  const Bank bank(keys, positions, kOp);
  const StreamAt stream{bank.given.read<uint64_t>(scope, "scope", {2}), name_of(name_lo, name_hi),
                        checked_word(rank_word, kOp, "rank_word"),
                        checked_word(worker, kOp, "worker")};
  bank.given.run<Device>(bank.n, kKeyGrain, [&](auto where) {
    launch_reseed(stream, static_cast<uint64_t>(start), bank.n, bank.keys, bank.positions, where);
  });
}

template <class Device>
void reseed_streams_from(const Tensor& keys, const Tensor& positions, const Tensor& seeds,
                         std::optional<Tensor> indices, int64_t name_lo, int64_t name_hi) {
  const Bank bank(keys, positions, "reseed_streams_from");
  const auto* from = bank.given.read<uint64_t>(seeds, "seeds", {bank.n});
  const auto* at = bank.given.read<int64_t>(indices, "indices", {bank.n});
  bank.given.run<Device>(bank.n, kKeyGrain, [&](auto where) {
    launch_reseed_from(from, at, name_of(name_lo, name_hi), bank.n, bank.keys, bank.positions,
                       where);
  });
}

template <class Device>
void register_keys(Library& m) {
  m.impl("derive_keys", TORCH_BOX(&derive_keys<Device>));
  m.impl("derive_seeds", TORCH_BOX(&derive_seeds<Device>));
  m.impl("reseed_streams", TORCH_BOX(&reseed_streams<Device>));
  m.impl("reseed_streams_at", TORCH_BOX(&reseed_streams_at<Device>));
  m.impl("reseed_streams_from", TORCH_BOX(&reseed_streams_from<Device>));
}

}  // namespace fastseed
