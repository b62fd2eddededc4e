// Perturbations on CUDA devices. A thread takes the numbers of 16 bytes at a time.
#include "../core/perturb.h"

#include "device.cuh"
#include "store.cuh"
#include "strided_layout.cuh"

namespace fastseed {
namespace {

template <class T>
struct PerturbLines {
  using Real = typename Compute<T>::Type;
  static constexpr int kMinBlocks = sizeof(T) == 2 ? 2 : 4;
  static constexpr int kEach = kVectorBytes / static_cast<int>(sizeof(T));
  static constexpr int kDrawn = 4 / Normal<Real>::kWords;  // values of normal noise in a block
  static constexpr int kGroups = 32 / kEach;               // of Rademacher noise, in a word
  Perturbation<T> what;

  struct Row {
    uint64_t first;
  };
  FS_DEVICE Row open(int64_t) const {
    return Row{0};
  }

  FS_DEVICE void noise(int64_t entry, uint64_t group, Real (&z)[kEach]) const {
    const Key key{load(what.keys + 2 * entry), load(what.keys + 2 * entry + 1)};
    if (!what.rademacher) {
#pragma unroll
      for (int b = 0; b < kEach / kDrawn; ++b) {
        const uint64_t block = group * (kEach / kDrawn) + static_cast<uint64_t>(b);
        Real drawn[kDrawn];
        Normal<Real>{0, 1}(Drawn{draw_block(key, block), key, block}, drawn);
#pragma unroll
        for (int k = 0; k < kDrawn; ++k) {
          z[b * kDrawn + k] = drawn[k];
        }
      }
      return;
    }
    const Block words = draw_block(key, group / (4 * kGroups));
    const uint64_t i = group / kGroups % 4;
    const uint32_t word =
        i < 2 ? (i == 0 ? words.w[0] : words.w[1]) : (i == 2 ? words.w[2] : words.w[3]);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      z[k] = sign_of<Real>(word, static_cast<int>(group % kGroups) * kEach + k);
    }
  }

  FS_DEVICE void write(const Row&, uint64_t group, int64_t from, int64_t at, int64_t length) const {
    T* const numbers = what.numbers + at + from;
    const bool whole = from >= 0 && from + kEach <= length &&
                       reinterpret_cast<uintptr_t>(numbers) % kVectorBytes == 0;
    T values[kEach];
    if (whole) {
      load_all(numbers, values);
    } else {
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        values[k] = from + k >= 0 && from + k < length ? numbers[k] : T{};
      }
    }
    Real sums[kEach], z[kEach] = {};
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      sums[k] = to_real(values[k]);
    }
#pragma unroll 1
    for (int64_t e = 0; e < what.entries; ++e) {
      noise(e, group, z);
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        z[k] = mul(static_cast<Real>(what.scales[e]), z[k]);
        sums[k] = moved(sums[k], z[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (what.action == Perturb::kAdd) {
        values[k] = sums[k] == sums[k] ? Rounded<T>::of(sums[k]) : values[k];
      } else if (whole || (from + k >= 0 && from + k < length)) {
        values[k] = one(at + from + k, values[k], z[k]);
      }
    }
    if (whole) {
      store_all<Read::kSoon>(numbers, values);
      return;
    }
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      if (from + k >= 0 && from + k < length) {
        store_value<Read::kSoon>(numbers + k, values[k]);
      }
    }
  }

  // The number at an index, moved by d and recorded, or moved back.
  FS_DEVICE T one(int64_t index, T before, Real d) const {
    if (what.action == Perturb::kUndo) {
      return moved_back(before, d, what.bytes[index]);
    }
    const T after = moved(before, d);
    int8_t byte = byte_of(before, after, d);
    T stored = after;
    if (byte == kListed) {
      const auto row = static_cast<int64_t>(
          atomicAdd(reinterpret_cast<unsigned long long*>(what.list), 1ull) + 1);
      if (row <= what.capacity) {
        what.list[2 * row] = index;
        what.list[2 * row + 1] = static_cast<int64_t>(same_bits<Pattern<T>>(before));
      } else {
        byte = kUnmoved;
        stored = before;
      }
    }
    what.bytes[index] = byte;
    return stored;
  }
};

}  // namespace

#define FS_DEFINE_PERTURB_CUDA(T)                                                \
  template <>                                                                    \
  void launch_perturb_cuda<T>(const Perturbation<T>& what, const Layout& layout, \
                              void* cuda_stream) {                               \
    launch_lines(PerturbLines<T>{what}, layout, 1, "perturb", cuda_stream);      \
  }
FS_DEFINE_PERTURB_CUDA(float)
FS_DEFINE_PERTURB_CUDA(double)
FS_DEFINE_PERTURB_CUDA(Half)
FS_DEFINE_PERTURB_CUDA(BFloat16)

}  // namespace fastseed
