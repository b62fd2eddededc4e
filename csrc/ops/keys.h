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

template <class Device>
struct KeyOps {
  // Below this a second thread costs more than it brings (about 20 microseconds of work).
  static constexpr int64_t kGrain = 1 << 15;

  static void derive_keys(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word,
                          int64_t worker, int64_t start) {
    Arguments given("derive_keys", out);
    given.write(out, "out", Dtype::UInt64, {kAnySize, 2});
    const Stream stream = stream_of(key, tweak, rank_word, worker, "derive_keys");
    given.mark_written();
    write_keys(out, stream, static_cast<uint64_t>(start));
  }

  static void write_keys(const Tensor& out, const Stream& stream, uint64_t start) {
    Device::run(out, out.size(0), kGrain, [&](auto where) {
      launch_derive_keys(stream, start, out.size(0), words_of(out), where);
    });
  }

  static void derive_seeds(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word,
                           int64_t worker, int64_t start) {
    Arguments given("derive_seeds", out);
    given.write(out, "out", Dtype::UInt64, {kAnySize});
    const Stream stream = stream_of(key, tweak, rank_word, worker, "derive_seeds");
    given.mark_written();
    write_seeds(out, stream, static_cast<uint64_t>(start));
  }

  static void write_seeds(const Tensor& out, const Stream& stream, uint64_t start) {
    Device::run(out, out.size(0), kGrain, [&](auto where) {
      launch_derive_seeds(stream, start, out.size(0), words_of(out), where);
    });
  }

  static Arguments bank(const Tensor& keys, const Tensor& positions, const char* op) {
    Arguments given(op, keys);
    given.write(keys, "keys", Dtype::UInt64, {kAnySize, 2});
    given.write(positions, "positions", Dtype::Long, {keys.size(0)});
    return given;
  }

  static void reseed_streams(const Tensor& keys, const Tensor& positions, int64_t key,
                             int64_t tweak, int64_t rank_word, int64_t worker, int64_t start) {
    const Arguments given = bank(keys, positions, "reseed_streams");
    reseed(given, keys, positions, stream_of(key, tweak, rank_word, worker, "reseed_streams"),
           start);
  }

  static void reseed_streams_at(const Tensor& keys, const Tensor& positions, const Tensor& scope,
                                int64_t name_lo, int64_t name_hi, int64_t rank_word, int64_t worker,
                                int64_t start) {
    constexpr const char* kOp = "reseed_streams_at";
    const Arguments given = bank(keys, positions, kOp);
    given.read(scope, "scope", Dtype::UInt64, {2});
    const StreamAt stream{words_of(scope), name_of(name_lo, name_hi),
                          checked_word(rank_word, kOp, "rank_word"),
                          checked_word(worker, kOp, "worker")};
    reseed(given, keys, positions, stream, start);
  }

  template <class S>  // a Stream, or a StreamAt
  static void reseed(const Arguments& given, const Tensor& keys, const Tensor& positions,
                     const S& stream, int64_t start) {
    given.mark_written();
    Device::run(keys, keys.size(0), kGrain, [&](auto where) {
      launch_reseed(stream, static_cast<uint64_t>(start), keys.size(0), words_of(keys),
                    longs_of(positions), where);
    });
  }

  static void reseed_streams_from(const Tensor& keys, const Tensor& positions, const Tensor& seeds,
                                  std::optional<Tensor> indices, int64_t name_lo, int64_t name_hi) {
    const Arguments given = bank(keys, positions, "reseed_streams_from");
    given.read(seeds, "seeds", Dtype::UInt64, {keys.size(0)});
    if (indices.has_value()) {
      given.read(*indices, "indices", Dtype::Long, {keys.size(0)});
    }
    given.mark_written();
    Device::run(keys, keys.size(0), kGrain, [&](auto where) {
      launch_reseed_from(words_of(seeds), indices.has_value() ? longs_of(*indices) : nullptr,
                         name_of(name_lo, name_hi), keys.size(0), words_of(keys),
                         longs_of(positions), where);
    });
  }
};

template <class Device>
void register_keys(Library& m) {
  m.impl("derive_keys", TORCH_BOX(&KeyOps<Device>::derive_keys));
  m.impl("derive_seeds", TORCH_BOX(&KeyOps<Device>::derive_seeds));
  m.impl("reseed_streams", TORCH_BOX(&KeyOps<Device>::reseed_streams));
  m.impl("reseed_streams_at", TORCH_BOX(&KeyOps<Device>::reseed_streams_at));
  m.impl("reseed_streams_from", TORCH_BOX(&KeyOps<Device>::reseed_streams_from));
}

}  // namespace fastseed
