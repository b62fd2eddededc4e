// Dropout as a function of a key and the index of an element: docs/spec/dropout.md is the
// specification; frozen like the draws.
#pragma once
#include <cstdint>

#include "draw.h"
#include "strided_layout.h"

namespace fastseed {

constexpr int kDropoutEach = 8;  // elements of one block, 16 bits each
constexpr int64_t kDropoutLevels = 1 << 16;
constexpr uint64_t kDropoutBlocks = uint64_t{1} << 61;  // of a stream: indices are modulo 2^64

// Number i of a block, whose words are read as 16-bit numbers, the lower half first.
FS_HD uint32_t dropout_number(const Block& block, int i) {
  return block.w[i / 2] >> (i % 2 * 16) & 0xffffu;
}

// Elements whose number is below `threshold` become 0, the others are scaled; NaNs keep their bits.
template <class T>
struct Dropout {
  using Value = T;
  using Real = RealOf<T>;
  uint32_t threshold;  // of 2^16
  Real scale;

  explicit Dropout(int64_t levels)
      : threshold(static_cast<uint32_t>(levels)),
        scale(levels == kDropoutLevels
                  ? Real{0}
                  : static_cast<Real>(65536.0 / static_cast<double>(kDropoutLevels - levels))) {}

  FS_HD T operator()(T x, uint32_t number) const {
    const Real real = to_real(x);
    const T kept = real != real ? x : rounded<T>(mul(real, scale));
    return number < threshold ? T{} : kept;
  }
};

// A key, and the index in the logical tensor of the first element of the row it is for.
struct DropoutKey {
  Key key;
  uint64_t first;
};

// `count` rows of `width` words: lo and hi of a key, and with a width of 3 its first index.
struct DropoutKeys {
  const uint64_t* words;
  int64_t width;
  int64_t count;

  template <class Load>
  FS_HD DropoutKey row(int64_t i, const Load& load) const {
    const uint64_t* at = words + i * width;
    return DropoutKey{Key{load(at), load(at + 1)}, width == 3 ? load(at + 2) : 0};
  }
};

// A layer and the elements that it is called for, or a draw of a block. What `count` holds moves
// the index of the key by `index_step` and the first element by `row_elements`.
struct LayerCall {
  Name name;
  uint64_t index;
  uint64_t index_step;
  uint64_t row_elements;
  uint32_t rank_field;
};

// The key at a scope, and the index of the first element.
FS_HD DropoutKey layer_key(const ScopeKey& scope, const LayerCall& call, uint64_t count) {
  const Stream stream{name_key(scope, call.name), with_domain(call.rank_field, Domain::kStream), 0};
  const uint64_t index = call.index + count * call.index_step;
  return DropoutKey{stream_key(stream, index), count * call.row_elements};
}

// Writes elements of the output, which has keys.count * layout.runs * layout.length of them: `in`
// and `out` point to the first of all.
template <class T>
void launch_dropout(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                    const T* in, T* out, Range part);
template <class T>
void launch_dropout(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                    const T* in, T* out, CudaStream cuda);

// out[0], [1], [2] = layer_key(...) of a scope and a count.
void launch_layer_key(const uint64_t* scope, const int64_t* count, const LayerCall& call,
                      uint64_t* out, Range part);
void launch_layer_key(const uint64_t* scope, const int64_t* count, const LayerCall& call,
                      uint64_t* out, CudaStream cuda);

}  // namespace fastseed
