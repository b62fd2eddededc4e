// The operator of exact sums, on the CPU.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <mutex>

#include "exact_sum_args.h"
#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 16;  // values: some ten microseconds

// The elements of all tensors, one after the other, are cut over threads.
void exact_sum(const Tensor& total, std::vector<Tensor> values, std::vector<Tensor> factors) {
  check_exact_sum(total, values, factors);
  mark_written(total);
  std::vector<int64_t> ends;
  int64_t elements = 0;
  for (const Tensor& tensor : values) {
    ends.push_back(elements += tensor.numel());
  }
  int64_t* out = longs_of(total);
  std::mutex mutex;
  parallel(elements, kGrain, [&](int64_t begin, int64_t end) {
    int64_t part[kExactSize] = {};
    size_t i = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
    for (; begin < end; ++i) {
      const int64_t from = begin - (ends[i] - values[i].numel());
      const int64_t n = std::min(ends[i], end) - begin;
      for_terms(values[i], factors, i, [&](const auto* numbers, const auto* others) {
        launch_exact_sum(numbers + from, others == nullptr ? nullptr : others + from, n, part);
      });
      begin += n;
    }
    std::lock_guard<std::mutex> lock(mutex);
    carry_exact(out);
    for (int k = 0; k < kExactSize; ++k) {
      out[k] += part[k];
    }
  });
  carry_exact(out);
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("exact_sum", TORCH_BOX(&fastseed::exact_sum));
}
