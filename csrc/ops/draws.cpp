// The operators that fill tensors with random numbers, on the CPU.
#include <torch/csrc/stable/library.h>

#include "draw_ops.h"
#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 14;  // values that a second thread is worth waking for

struct Cpu {
  // What every draw has in common: the launch over the output, split over threads.
  static auto drawing(const Tensor& out, const Tensor& keys, const std::optional<Tensor>& positions,
                      const Part& part, const char* op) {
    const Streams streams = streams_of(out, keys, positions, op);
    const int64_t total = out.numel();
    const Layout layout =
        layout_of(total, streams.count, part.sizes, part.strides, part.offset, op);
    return [=, &out](const auto& distribution, auto* data) {
      check_words(distribution, layout, op);
      mark_written(out);
      parallel(total, kGrain, [&](int64_t begin, int64_t end) {
        launch_draw(distribution, streams, layout, begin, end, data);
      });
    };
  }
};

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  using namespace fastseed;
  FS_REGISTER_DRAWS(m, Cpu);
}
