// Dropout on CUDA devices. A thread takes the elements of one Philox block at a time; where they
// lie on an aligned address, 16 bytes at once.
#include "../kernels/dropout.h"
#include "device.cuh"
#include "fp_math.cuh"
#include "store.cuh"
#include "strided_layout.cuh"

namespace fastseed {
namespace {

constexpr int64_t kMostItems = int64_t{1} << 30;  // of one launch: their numbers have 32 bits

struct Loaded {
  FS_DEVICE uint64_t operator()(const uint64_t* at) const {
    return load(at);
  }
};

FS_DEVICE void unpack(const uint32_t (&w)[4], int i, float& out) {
  out = bits_float(w[i]);
}
FS_DEVICE void unpack(const uint32_t (&w)[4], int i, double& out) {
  out = bits_double(w[2 * i] | static_cast<uint64_t>(w[2 * i + 1]) << 32);
}
template <class T>
FS_DEVICE void unpack(const uint32_t (&w)[4], int i, T& out) {
  out.bits = static_cast<uint16_t>(w[i / 2] >> (i % 2 * 16));
}

// Eight elements from an address that is a multiple of 16.
template <class T>
FS_DEVICE void load_all(const T* at, T (&values)[kDropoutEach]) {
  constexpr int kVectors = kDropoutEach * static_cast<int>(sizeof(T)) / kVectorBytes;
  constexpr int kEach = kVectorBytes / static_cast<int>(sizeof(T));
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(at) + v);
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      unpack(w, i, values[v * kEach + i]);
    }
  }
}

template <class T>
struct Drop {
  static constexpr int kMinBlocks = 6;
  Dropout<T> rule;
  DropoutKeys keys;
  FastLayout layout;
  int64_t first_line;   // a line is one run of one row
  int64_t first_block;  // of every line
  uint32_t items;
  uint32_t per_line;  // items of a line: its blocks
  Divider line_of;
  const T* in;
  T* out;

  FS_DEVICE void one(uint32_t item) const {
    const uint32_t local = line_of.quotient(item);
    const int64_t line = first_line + local;
    const int64_t row = layout.runs.quotient(line);
    const DropoutKey key = keys.row(row, Loaded());
    const uint64_t start =
        key.first + static_cast<uint64_t>(layout.start(line - row * layout.runs.divisor()));
    const int64_t skip = first_block + (item - local * per_line);
    // the place in the line of the block's first element
    const int64_t from = skip * kDropoutEach - static_cast<int64_t>(start % kDropoutEach);
    if (from >= layout.length) {
      return;
    }
    const uint64_t block = start / kDropoutEach + static_cast<uint64_t>(skip);
    const Block words = draw_block(key.key, block % kDropoutBlocks);
    const int64_t at = line * layout.length + from;
    if (from >= 0 && from + kDropoutEach <= layout.length &&
        (reinterpret_cast<uintptr_t>(in + at) | reinterpret_cast<uintptr_t>(out + at)) %
                kVectorBytes ==
            0) {
      T values[kDropoutEach];
      load_all(in + at, values);
#pragma unroll
      for (int i = 0; i < kDropoutEach; ++i) {
        values[i] = rule(values[i], dropout_number(words, i));
      }
      store_all(out + at, values);
      return;
    }
#pragma unroll
    for (int i = 0; i < kDropoutEach; ++i) {
      if (from + i >= 0 && from + i < layout.length) {
        store_value(out + at + i, rule(in[at + i], dropout_number(words, i)));
      }
    }
  }

  FS_DEVICE void operator()(Place at) const {
#pragma unroll 1
    for (uint32_t item = at.block * kThreads + at.thread; item < items;
         item += at.blocks * kThreads) {
      one(item);
    }
  }
};

struct LayerKey {
  static constexpr int kMinBlocks = 1;
  const uint64_t* scope;
  const int64_t* first_row;
  LayerCall call;
  uint64_t* out;

  FS_DEVICE void operator()(Place at) const {
    if (at.block == 0 && at.thread == 0) {
      const uint64_t row = load(reinterpret_cast<const uint64_t*>(first_row));
      const DropoutKey made = layer_key(Scope{load(scope), load(scope + 1)}, call, row);
      store(out, made.key.lo);
      store(out + 1, made.key.hi);
      store(out + 2, made.first);
    }
  }
};

// `most` is for tests: the result does not depend on it.
template <class T>
void drop_cuda(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout, const T* in,
               T* out, void* cuda_stream, int64_t most = kMostItems) {
  const FastLayout fast(layout, keys.count);
  const int64_t lines = keys.count * layout.runs;
  // wherever in a block a line begins
  const int64_t blocks = (layout.length + kDropoutEach - 2) / kDropoutEach + 1;
  for (int64_t b = 0; b < blocks; b += most) {
    const int64_t per_line = blocks - b < most ? blocks - b : most;
    const int64_t together = most / per_line;
    for (int64_t line = 0; line < lines; line += together) {
      const int64_t count = lines - line < together ? lines - line : together;
      const uint32_t each = static_cast<uint32_t>(per_line);
      launch(Drop<T>{rule, keys, fast, line, b, static_cast<uint32_t>(count) * each, each,
                     Divider(each), in, out},
             (count * per_line + kThreads - 1) / kThreads, "dropout", cuda_stream);
    }
  }
}

}  // namespace

#define FS_DEFINE_DROPOUT_CUDA(T)                                                             \
  template <>                                                                                 \
  void launch_dropout_cuda<T>(const Dropout<T>& rule, const DropoutKeys& keys,                \
                              const Layout& layout, const T* in, T* out, void* cuda_stream) { \
    drop_cuda(rule, keys, layout, in, out, cuda_stream);                                      \
  }
FS_EACH_DROPOUT(FS_DEFINE_DROPOUT_CUDA)

void launch_layer_key_cuda(const uint64_t* scope, const int64_t* first_row, const LayerCall& call,
                           uint64_t* out, void* cuda_stream) {
  launch(LayerKey{scope, first_row, call, out}, 1, "layer_key", cuda_stream);
}

}  // namespace fastseed
