// The operators that choose tokens, on the CPU.
#include "sampling_ops.h"

#include <torch/csrc/stable/library.h>

#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 15;  // numbers that a second thread is worth waking for

// Rows, or parts of them, of which one thread has so many numbers at least.
int64_t grain_of(int64_t size) {
  return size >= kGrain ? 1 : kGrain / size;
}

struct Cpu {
  template <class T>
  static void race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                   const Tensor&) {
    parallel(numbers.rows * out.parts, grain_of((numbers.size + out.parts - 1) / out.parts),
             [&](int64_t begin, int64_t end) { launch_race(numbers, races, out, begin, end); });
  }

  template <class T>
  static void threshold(const NumberRows<T>& numbers, const ThresholdRows& rows, const Tensor&) {
    parallel(numbers.rows, grain_of(numbers.size),
             [&](int64_t begin, int64_t end) { launch_threshold(numbers, rows, begin, end); });
  }
};

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  FS_REGISTER_SAMPLING(m, fastseed::Cpu);
}
