// Perturbations on CUDA devices. A thread takes the numbers of 16 bytes of noise at a time.
#include "../kernels/perturb.h"
#include "device.cuh"
#include "store.cuh"
#include "strided_layout.cuh"

namespace fastseed {
namespace {

template <class T>
struct Perturb {
  using Real = typename Compute<T>::Type;
  static constexpr int kMinBlocks = 4;
  static constexpr int kEach = 4 / Normal<Real>::kWords;
  static constexpr int kGroups = 128 / kEach;  // of Rademacher noise, in one Philox block
  Perturbation<T> what;

  struct Row {
    uint64_t first;
  };

  FS_DEVICE Row open(int64_t) const {
    return Row{0};
  }

  FS_DEVICE void noise(int64_t entry, uint64_t block, Real (&z)[kEach]) const {
    const Key key{load(what.keys + 2 * entry), load(what.keys + 2 * entry + 1)};
    if (!what.rademacher) {
      Normal<Real>{0, 1}(Drawn{draw_block(key, block), key, block}, z);
      return;
    }
    const Block words = draw_block(key, block / kGroups);
    const int bit = static_cast<int>(block % kGroups) * kEach;
    const uint32_t word =
        bit < 64 ? (bit < 32 ? words.w[0] : words.w[1]) : (bit < 96 ? words.w[2] : words.w[3]);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      z[i] = sign_of<Real>(word, bit % 32 + i);
    }
  }

  FS_DEVICE void write(const Row&, uint64_t block, int64_t from, int64_t at, int64_t length) const {
    T numbers[kEach];
    Real sums[kEach], z[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool inside = from + i >= 0 && from + i < length;
      numbers[i] = inside ? what.numbers[at + from + i] : T{};
      sums[i] = to_real(numbers[i]);
    }
#pragma unroll 1
    for (int64_t e = 0; e < what.entries; ++e) {
      const Real scale = static_cast<Real>(what.scales[e]);
      noise(e, block, z);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (from + i >= 0 && from + i < length) {
          one(at + from + i, mul(scale, z[i]), numbers[i], sums[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (from + i >= 0 && from + i < length) {
        if (what.mode == PerturbMode::kAdd && sums[i] == sums[i]) {
          numbers[i] = Rounded<T>::of(sums[i]);
        }
        store_value(what.numbers + at + from + i, numbers[i]);
      }
    }
  }

  FS_DEVICE void one(int64_t index, Real d, T& number, Real& sum) const {
    if (what.mode == PerturbMode::kAdd) {
      sum = moved(sum, d);
    } else if (what.mode == PerturbMode::kEach) {
      number = moved(number, d);
    } else if (what.mode == PerturbMode::kUndo) {
      number = moved_back(number, d, what.bytes[index]);
    } else {
      const T before = number;
      number = moved(before, d);
      int8_t byte = byte_of(before, number, d);
      if (byte == kListed) {
        const auto row = static_cast<int64_t>(
            atomicAdd(reinterpret_cast<unsigned long long*>(what.list), 1ull) + 1);
        if (row <= what.capacity) {
          what.list[2 * row] = index;
          what.list[2 * row + 1] = static_cast<int64_t>(pattern_of(before));
        } else {
          number = before;
          byte = kUnmoved;
        }
      }
      what.bytes[index] = byte;
    }
  }
};

}  // namespace

#define FS_DEFINE_PERTURB_CUDA(T)                                                \
  template <>                                                                    \
  void launch_perturb_cuda<T>(const Perturbation<T>& what, const Layout& layout, \
                              void* cuda_stream) {                               \
    launch_lines(Perturb<T>{what}, layout, 1, "perturb", cuda_stream);           \
  }
FS_EACH_PERTURBED(FS_DEFINE_PERTURB_CUDA)

}  // namespace fastseed
