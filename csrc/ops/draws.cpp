// The operators that fill tensors with random numbers, and those that key many streams, on the CPU.
#include <torch/csrc/stable/library.h>

#include "../cpu/derive.h"
#include "draw_ops.h"
#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 14;  // values, or keys, that a second thread is worth waking for

struct Cpu {
  // What every draw has in common: the launch over the output, split over threads.
  static auto drawing(const Tensor& out, const Tensor& keys, const std::optional<Tensor>& positions,
                      const Part& part, const char* op) {
    const Streams streams = streams_of(out, keys, positions, op);
    const int64_t total = out.numel();
    const Layout layout =
        layout_of(total, streams.count, part.sizes, part.strides, part.offset, op);
    return [=, &out](const auto& distribution, auto* data) {
      mark_written(out);
      parallel(total, kGrain, [&](int64_t begin, int64_t end) {
        launch_draw(distribution, streams, layout, begin, end, data);
      });
    };
  }
};

// ------------------------------------------------------------------------------- keys

Name name_of(int64_t lo, int64_t hi) {
  return Name{static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)};
}

Stream stream_at(const Tensor& scope, Name name, int64_t rank_word, int64_t worker) {
  const uint64_t* words = static_cast<const uint64_t*>(scope.data_ptr());
  return Stream{name_key(Scope{words[0], words[1]}, name), static_cast<uint32_t>(rank_word),
                static_cast<uint32_t>(worker)};
}

void fill_streams(const Tensor& keys, const Tensor& positions, const Stream& stream,
                  int64_t start) {
  mark_written(keys);
  mark_written(positions);
  uint64_t* key_data = static_cast<uint64_t*>(keys.data_ptr());
  int64_t* position_data = static_cast<int64_t*>(positions.data_ptr());
  parallel(keys.size(0), kGrain, [&](int64_t begin, int64_t end) {
    launch_derive_keys(stream, static_cast<uint64_t>(start) + static_cast<uint64_t>(begin),
                       end - begin, key_data + 2 * begin);
    for (int64_t i = begin; i < end; ++i) {
      position_data[i] = 0;
    }
  });
}

void reseed_streams(const Tensor& keys, const Tensor& positions, int64_t key, int64_t tweak,
                    int64_t rank_word, int64_t worker, int64_t start) {
  check_reseed(keys, positions, "reseed_streams");
  fill_streams(keys, positions,
               Stream{{static_cast<uint64_t>(key), static_cast<uint64_t>(tweak)},
                      static_cast<uint32_t>(rank_word),
                      static_cast<uint32_t>(worker)},
               start);
}

void reseed_streams_at(const Tensor& keys, const Tensor& positions, const Tensor& scope,
                       int64_t name_lo, int64_t name_hi, int64_t rank_word, int64_t worker,
                       int64_t start) {
  check_reseed_at(keys, positions, scope, "reseed_streams_at");
  fill_streams(keys, positions, stream_at(scope, name_of(name_lo, name_hi), rank_word, worker),
               start);
}

void reseed_streams_from(const Tensor& keys, const Tensor& positions, const Tensor& seeds,
                         std::optional<Tensor> indices, int64_t name_lo, int64_t name_hi) {
  check_reseed_from(keys, positions, seeds, indices);
  mark_written(keys);
  mark_written(positions);
  const Name name = name_of(name_lo, name_hi);
  uint64_t* key_data = static_cast<uint64_t*>(keys.data_ptr());
  int64_t* position_data = static_cast<int64_t*>(positions.data_ptr());
  const uint64_t* seed_data = static_cast<const uint64_t*>(seeds.data_ptr());
  const int64_t* index_data =
      indices.has_value() ? static_cast<const int64_t*>(indices->data_ptr()) : nullptr;
  parallel(keys.size(0), kGrain, [&](int64_t begin, int64_t end) {
    launch_keys_of_seeds(seed_data + begin, index_data == nullptr ? nullptr : index_data + begin,
                         name, end - begin, key_data + 2 * begin);
    for (int64_t i = begin; i < end; ++i) {
      position_data[i] = 0;
    }
  });
}

void derive_keys_at(const Tensor& out, const Tensor& scope, int64_t name_lo, int64_t name_hi,
                    int64_t rank_word, int64_t worker, int64_t start) {
  check_keys(out, "derive_keys_at");
  check_scope(scope, out, "derive_keys_at");
  const Stream stream = stream_at(scope, name_of(name_lo, name_hi), rank_word, worker);
  mark_written(out);
  uint64_t* data = static_cast<uint64_t*>(out.data_ptr());
  parallel(out.size(0), kGrain, [&](int64_t begin, int64_t end) {
    launch_derive_keys(stream, static_cast<uint64_t>(start) + static_cast<uint64_t>(begin),
                       end - begin, data + 2 * begin);
  });
}

void derive_seeds_at(const Tensor& out, const Tensor& scope, int64_t name_lo, int64_t name_hi,
                     int64_t rank_word, int64_t worker, int64_t start) {
  check_seeds(out, "derive_seeds_at");
  check_scope(scope, out, "derive_seeds_at");
  const Stream stream = stream_at(scope, name_of(name_lo, name_hi), rank_word, worker);
  mark_written(out);
  uint64_t* data = static_cast<uint64_t*>(out.data_ptr());
  parallel(out.size(0), kGrain, [&](int64_t begin, int64_t end) {
    launch_derive_seeds(stream, static_cast<uint64_t>(start) + static_cast<uint64_t>(begin),
                        end - begin, data + begin);
  });
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  using namespace fastseed;
  FS_REGISTER_DRAWS(m, Cpu);
  m.impl("derive_keys_at", TORCH_BOX(&fastseed::derive_keys_at));
  m.impl("derive_seeds_at", TORCH_BOX(&fastseed::derive_seeds_at));
  m.impl("reseed_streams", TORCH_BOX(&fastseed::reseed_streams));
  m.impl("reseed_streams_at", TORCH_BOX(&fastseed::reseed_streams_at));
  m.impl("reseed_streams_from", TORCH_BOX(&fastseed::reseed_streams_from));
}
