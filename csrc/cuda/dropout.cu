// Dropout on CUDA devices. A thread takes the elements of one Philox block at a time; where they
// lie on an aligned address, 16 bytes at once.
#include "../core/dropout.h"
#include "device.cuh"
#include "strided_layout.cuh"

namespace fastseed {
namespace {

template <class T>
struct Drop {
  static constexpr int kMinBlocks = 6;
  static constexpr int kEach = kDropoutEach;
  Dropout<T> rule;
  DropoutKeys keys;
  const T* in;
  T* out;

  FS_DEVICE DropoutKey open(int64_t row) const {
    return keys.row(row, [](const uint64_t* at) { return load(at); });
  }

  FS_DEVICE void write(const DropoutKey& key, uint64_t block, int64_t at, Inside inside) const {
    const Block words = draw_block(key.key, block % kDropoutBlocks);
    const bool all = inside.all(kEach, in + at) && is_aligned(out + at, kVectorBytes);
    T values[kEach];
    load_inside(in + at, values, inside, all);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      values[i] = rule(values[i], dropout_number(words, i));
    }
    store_inside<Read::kSoon>(out + at, values, inside, all);
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

template <class T>
void launch_dropout(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                    const T* in, T* out, CudaStream cuda) {
  launch_lines(Drop<T>{rule, keys, in, out}, layout, keys.count, "dropout", cuda);
}

#define FS_INSTANTIATE(T)                                                                         \
  template void launch_dropout<T>(const Dropout<T>&, const DropoutKeys&, const Layout&, const T*, \
                                  T*, CudaStream);
FS_EACH_REAL(FS_INSTANTIATE)
#undef FS_INSTANTIATE

void launch_layer_key(const uint64_t* scope, const int64_t* count, const LayerCall& call,
                      uint64_t* out, CudaStream cuda) {
  launch(LayerKey{scope, count, call, out}, 1, "layer_key", cuda);
}

}  // namespace fastseed
