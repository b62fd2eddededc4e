// Dropout on CUDA devices. A thread takes the elements of one Philox block at a time; where they
// lie on an aligned address, 16 bytes at once.
#include "../core/dropout.h"
#include "device.cuh"
#include "store.cuh"
#include "strided_layout.cuh"

namespace fastseed {
namespace {

struct Loaded {
  FS_DEVICE uint64_t operator()(const uint64_t* at) const {
    return load(at);
  }
};

template <class T>
struct Drop {
  static constexpr int kMinBlocks = 6;
  static constexpr int kEach = kDropoutEach;
  Dropout<T> rule;
  DropoutKeys keys;
  const T* in;
  T* out;

  FS_DEVICE DropoutKey open(int64_t row) const {
    return keys.row(row, Loaded());
  }

  FS_DEVICE void write(const DropoutKey& key, uint64_t block, int64_t from, int64_t at,
                       int64_t length) const {
    const Block words = draw_block(key.key, block % kDropoutBlocks);
    const T* read = in + at + from;
    T* to = out + at + from;
    if (from >= 0 && from + kEach <= length &&
        (reinterpret_cast<uintptr_t>(read) | reinterpret_cast<uintptr_t>(to)) % kVectorBytes == 0) {
      T values[kEach];
      load_all(read, values);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        values[i] = rule(values[i], dropout_number(words, i));
      }
      store_all<Read::kSoon>(to, values);
      return;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (from + i >= 0 && from + i < length) {
        store_value<Read::kSoon>(to + i, rule(read[i], dropout_number(words, i)));
      }
    }
  }
};

struct LayerKey {
  static constexpr int kMinBlocks = 1;
  const uint64_t* scope;
  const int64_t* count;
  LayerCall call;
  uint64_t* out;

  FS_DEVICE void operator()(ThreadIndex at) const {
    if (at.block == 0 && at.thread == 0) {
      const uint64_t held = load(reinterpret_cast<const uint64_t*>(count));
      const DropoutKey made = layer_key(ScopeKey{load(scope), load(scope + 1)}, call, held);
      store(out, made.key.lo);
      store(out + 1, made.key.hi);
      store(out + 2, made.first);
    }
  }
};

}  // namespace

#define FS_DEFINE_DROPOUT_CUDA(T)                                                             \
  template <>                                                                                 \
  void launch_dropout_cuda<T>(const Dropout<T>& rule, const DropoutKeys& keys,                \
                              const Layout& layout, const T* in, T* out, void* cuda_stream) { \
    launch_lines(Drop<T>{rule, keys, in, out}, layout, keys.count, "dropout", cuda_stream);   \
  }
FS_EACH_DROPOUT(FS_DEFINE_DROPOUT_CUDA)

void launch_layer_key_cuda(const uint64_t* scope, const int64_t* count, const LayerCall& call,
                           uint64_t* out, void* cuda_stream) {
  launch(LayerKey{scope, count, call, out}, 1, "layer_key", cuda_stream);
}

}  // namespace fastseed
