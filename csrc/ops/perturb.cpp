// The operator of perturbations, on the CPU.
#include "perturb_ops.h"

#include <torch/csrc/stable/library.h>

#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 14;  // numbers that a second thread is worth waiting for

struct Cpu {
  template <class T>
  static void perturb(const Perturbation<T>& what, const Layout& layout, const Tensor& tensor) {
    parallel(tensor.numel(), kGrain,
             [&](int64_t begin, int64_t end) { launch_perturb(what, layout, begin, end); });
  }
};

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("perturb", TORCH_BOX(&fastseed::perturb<fastseed::Cpu>));
}
