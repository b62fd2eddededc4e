// The operators of dropout, on the CPU.
#include <torch/csrc/stable/library.h>

#include "dropout_ops.h"
#include "huge_pages.h"
#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kHugeBytes = int64_t{4} << 20;  // of an output that is worth huge pages
constexpr int64_t kGrain = 1 << 14;  // elements that a second thread is worth waking for

struct Cpu {
  template <class T>
  static void drop(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                   const T* in, T* out, const Tensor& tensor) {
    if (bytes_of(tensor) >= kHugeBytes) {
      ask_for_huge_pages(out, bytes_of(tensor));
    }
    parallel(tensor.numel(), kGrain, [&](int64_t begin, int64_t end) {
      launch_dropout(rule, keys, layout, begin, end, in, out);
    });
  }

  static void layer_key(uint64_t* out, const uint64_t* scope, const int64_t* count,
                        const LayerCall& call, const Tensor&) {
    const DropoutKey made =
        fastseed::layer_key(ScopeKey{scope[0], scope[1]}, call, static_cast<uint64_t>(*count));
    out[0] = made.key.lo;
    out[1] = made.key.hi;
    out[2] = made.first;
  }
};

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  using namespace fastseed;
  FS_REGISTER_DROPOUT(m, Cpu);
}
