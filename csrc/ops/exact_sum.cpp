// The operator of exact sums, on the CPU.
#include <torch/csrc/stable/library.h>

#include <mutex>

#include "exact_sum_args.h"
#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 16;  // values: some ten microseconds

void exact_sum(const Tensor& total, std::vector<Tensor> values, std::vector<Tensor> factors) {
  check_exact_sum(total, values, factors);
  mark_written(total);
  int64_t* out = longs_of(total);
  carry_exact(out);
  for (size_t i = 0; i < values.size(); ++i) {
    for_terms(values[i], factors, i, [&](const auto* numbers, const auto* others) {
      std::mutex mutex;
      parallel(values[i].numel(), kGrain, [&](int64_t begin, int64_t end) {
        int64_t part[kExactSize] = {};
        launch_exact_sum(numbers + begin, others == nullptr ? nullptr : others + begin, end - begin,
                         part);
        std::lock_guard<std::mutex> lock(mutex);
        for (int k = 0; k < kExactSize; ++k) {
          out[k] += part[k];
        }
      });
    });
    carry_exact(out);
  }
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("exact_sum", TORCH_BOX(&fastseed::exact_sum));
}
