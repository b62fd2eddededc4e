// Perturbations on CUDA devices. A thread takes the numbers of 16 bytes at a time.
#include "../core/perturb.h"

#include "device.cuh"
#include "strided_layout.cuh"

namespace fastseed {
namespace {

template <class T>
struct PerturbLines {
  using Real = RealOf<T>;
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
    const uint32_t word = draw_block(key, group / (4 * kGroups)).word(group / kGroups % 4);
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      z[k] = sign_of<Real>(word, static_cast<int>(group % kGroups) * kEach + k);
    }
  }

  FS_DEVICE void write(const Row&, uint64_t group, int64_t at, Inside inside) const {
    T* const numbers = what.numbers + at;
    const bool all = inside.all(kEach, numbers);
    T values[kEach];
    load_inside(numbers, values, inside, all);
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
        values[k] = sums[k] == sums[k] ? rounded<T>(sums[k]) : values[k];
      } else if (all || inside[k]) {
        values[k] = one(at + k, values[k], z[k]);
      }
    }
    store_inside<Read::kSoon>(numbers, values, inside, all);
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
        what.list[2 * row + 1] = static_cast<int64_t>(bits_of(before));
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

template <class T>
void launch_perturb(const Perturbation<T>& what, const Layout& layout, CudaStream cuda) {
  launch_lines(PerturbLines<T>{what}, layout, 1, "perturb", cuda);
}

#define FS_INSTANTIATE(T) \
  template void launch_perturb<T>(const Perturbation<T>&, const Layout&, CudaStream);
FS_EACH_REAL(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
