// The operators of the order of an epoch and its inverse, on the CPU.
#include "shuffle_ops.h"

#include <torch/csrc/stable/library.h>

#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 12;  // positions that a second thread is worth waking for

struct Cpu {
  static void shuffle(const Shuffle& order, const Positions& at, const Tensor& out) {
    parallel(at.count, kGrain, [&](int64_t begin, int64_t end) {
      launch_shuffle(order, Positions{at[begin], at.stride, end - begin}, longs_of(out) + begin);
    });
  }

  static void shuffle_positions(const Shuffle& order, const int64_t* numbers, const Tensor& out) {
    parallel(out.size(0), kGrain, [&](int64_t begin, int64_t end) {
      launch_shuffle_positions(order, numbers + begin, end - begin, longs_of(out) + begin);
    });
  }
};

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  FS_REGISTER_SHUFFLE(m, fastseed::Cpu);
}
