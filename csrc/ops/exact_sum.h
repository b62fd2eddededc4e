// The operator of exact sums.
#pragma once
#include <tuple>
#include <type_traits>
#include <vector>

#include "../core/exact_sum.h"
#include "tensor_checks.h"

namespace fastseed {

inline void check_terms(const std::vector<Tensor>& tensors, const std::vector<Tensor>& values,
                        const char* name, const Arguments& given) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    for_reals(tensors[i], "exact_sum", name, [](auto*) {});
    given.read_any(tensors[i], name);
    STD_TORCH_CHECK(tensors[i].scalar_type() == values[i].scalar_type() &&
                        tensors[i].numel() == values[i].numel(),
                    "fastseed.exact_sum: factors must be of the dtypes and sizes of the values");
  }
}

// The values of all tensors of one dtype.
template <class Device, class T>
void add_parts(const std::vector<ExactPart<T>>& parts, int64_t* sum, const Tensor& total) {
  constexpr int64_t kGrain = 1 << 16;  // values: some ten microseconds
  if (parts.empty()) {
    return;
  }
  int64_t n = 0;
  for (const ExactPart<T>& part : parts) {
    n += part.n;
  }
  Device::run(total, n, kGrain, [&](auto where) { launch_exact_sum(parts, sum, where); });
}

template <class Device>
void exact_sum(const Tensor& total, std::vector<Tensor> values, std::vector<Tensor> factors) {
  Arguments given("exact_sum", total);
  auto* sum = given.write<int64_t>(total, "total", {kExactSize});
  STD_TORCH_CHECK(factors.empty() || factors.size() == values.size(),
                  "fastseed.exact_sum: factors must be none or as many as values");
  check_terms(values, values, "values", given);
  check_terms(factors, values, "factors", given);
  given.mark_written();
  std::tuple<std::vector<ExactPart<float>>, std::vector<ExactPart<double>>,
             std::vector<ExactPart<Half>>, std::vector<ExactPart<BFloat16>>>
      parts;
  for (size_t i = 0; i < values.size(); ++i) {
    for_reals(values[i], "exact_sum", "values", [&](const auto* data) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
      const auto* others = factors.empty() ? nullptr : static_cast<const T*>(factors[i].data_ptr());
      std::get<std::vector<ExactPart<T>>>(parts).push_back({data, others, values[i].numel()});
    });
  }
  if (values.empty()) {  // each call carries
    std::get<std::vector<ExactPart<float>>>(parts).push_back({});
  }
  if (!Device::kIsCuda) {
    carry_exact(sum);
  }
  std::apply([&](const auto&... each) { (add_parts<Device>(each, sum, total), ...); }, parts);
  if (!Device::kIsCuda) {
    carry_exact(sum);
  }
}

template <class Device>
void register_exact_sum(Library& m) {
  m.impl("exact_sum", TORCH_BOX(&exact_sum<Device>));
}

}  // namespace fastseed
