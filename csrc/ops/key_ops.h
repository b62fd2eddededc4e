// The operators that derive keys, for any device: a Device gives the launches.
#pragma once
#include "../core/derive.h"
#include "draw_args.h"

namespace fastseed {

// Words of a counter have 32 bits.
inline uint32_t checked_word(int64_t value, const char* op, const char* argument) {
  STD_TORCH_CHECK(value >= 0 && value >> 32 == 0, "fastseed.", op, ": ", argument,
                  " must be in [0, 2**32), got ", value);
  return static_cast<uint32_t>(value);
}

// Where below a name a stream is.
struct StreamWords {
  uint32_t rank_word, worker;

  StreamWords(int64_t rank_word, int64_t worker, const char* op)
      : rank_word(checked_word(rank_word, op, "rank_word")),
        worker(checked_word(worker, op, "worker")) {}
};

// Other integers of a schema are signed, the derivation's unsigned: the same 64 bits.
inline Stream stream_of(int64_t key, int64_t tweak, const StreamWords& at) {
  return Stream{
      {static_cast<uint64_t>(key), static_cast<uint64_t>(tweak)}, at.rank_word, at.worker};
}

inline Name name_of(int64_t lo, int64_t hi) {
  return Name{static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)};
}

inline void check_scope(const Tensor& scope, const Tensor& written, const char* op) {
  check_tensor(scope, op, "scope", Dtype::UInt64, {2}, written);
  check_disjoint(written, scope, op, "scope");
}

inline void check_reseed(const Tensor& keys, const Tensor& positions, const char* op) {
  check_tensor(keys, op, "keys", Dtype::UInt64, {kAnySize, 2}, keys);
  check_tensor(positions, op, "positions", Dtype::Long, {keys.size(0)}, keys);
  check_disjoint(keys, positions, op, "positions");
}

// Device::stream_at(scope, name, at) is a stream whose scope lies in a tensor;
// Device::keys, ::seeds, ::reseed and ::reseed_from write to tensors that are checked.
template <class Device>
struct KeyOps {
  static void derive_keys(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word,
                          int64_t worker, int64_t start) {
    check_tensor(out, "derive_keys", "out", Dtype::UInt64, {kAnySize, 2}, out);
    const StreamWords at(rank_word, worker, "derive_keys");
    mark_written(out);
    Device::keys(out, stream_of(key, tweak, at), static_cast<uint64_t>(start));
  }

  static void derive_seeds(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word,
                           int64_t worker, int64_t start) {
    check_tensor(out, "derive_seeds", "out", Dtype::UInt64, {kAnySize}, out);
    const StreamWords at(rank_word, worker, "derive_seeds");
    mark_written(out);
    Device::seeds(out, stream_of(key, tweak, at), static_cast<uint64_t>(start));
  }

  static void reseed_streams(const Tensor& keys, const Tensor& positions, int64_t key,
                             int64_t tweak, int64_t rank_word, int64_t worker, int64_t start) {
    check_reseed(keys, positions, "reseed_streams");
    const StreamWords at(rank_word, worker, "reseed_streams");
    mark_written(keys);
    mark_written(positions);
    Device::reseed(keys, positions, stream_of(key, tweak, at), static_cast<uint64_t>(start));
  }

  static void reseed_streams_at(const Tensor& keys, const Tensor& positions, const Tensor& scope,
                                int64_t name_lo, int64_t name_hi, int64_t rank_word, int64_t worker,
                                int64_t start) {
    check_reseed(keys, positions, "reseed_streams_at");
    check_scope(scope, keys, "reseed_streams_at");
    check_disjoint(positions, scope, "reseed_streams_at", "scope");
    const StreamWords at(rank_word, worker, "reseed_streams_at");
    mark_written(keys);
    mark_written(positions);
    Device::reseed(keys, positions, Device::stream_at(scope, name_of(name_lo, name_hi), at),
                   static_cast<uint64_t>(start));
  }

  static void reseed_streams_from(const Tensor& keys, const Tensor& positions, const Tensor& seeds,
                                  std::optional<Tensor> indices, int64_t name_lo, int64_t name_hi) {
    constexpr const char* kOp = "reseed_streams_from";
    check_reseed(keys, positions, kOp);
    check_tensor(seeds, kOp, "seeds", Dtype::UInt64, {keys.size(0)}, keys);
    check_disjoint(keys, seeds, kOp, "seeds");
    check_disjoint(positions, seeds, kOp, "seeds");
    if (indices.has_value()) {
      check_tensor(*indices, kOp, "indices", Dtype::Long, {keys.size(0)}, keys);
      check_disjoint(keys, *indices, kOp, "indices");
      check_disjoint(positions, *indices, kOp, "indices");
    }
    mark_written(keys);
    mark_written(positions);
    Device::reseed_from(keys, positions, words_of(seeds),
                        indices.has_value() ? longs_of(*indices) : nullptr,
                        name_of(name_lo, name_hi));
  }
};

#define FS_REGISTER_KEYS(m, Device)                                           \
  m.impl("derive_keys", TORCH_BOX(&KeyOps<Device>::derive_keys));             \
  m.impl("derive_seeds", TORCH_BOX(&KeyOps<Device>::derive_seeds));           \
  m.impl("reseed_streams", TORCH_BOX(&KeyOps<Device>::reseed_streams));       \
  m.impl("reseed_streams_at", TORCH_BOX(&KeyOps<Device>::reseed_streams_at)); \
  m.impl("reseed_streams_from", TORCH_BOX(&KeyOps<Device>::reseed_streams_from))

}  // namespace fastseed
