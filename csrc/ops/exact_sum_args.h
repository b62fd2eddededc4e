// The arguments of the operator of exact sums, checked once, the same for every device. Uses the
// stable ABI alone.
#pragma once
#include <vector>

#include "../core/exact_sum.h"
#include "tensor_checks.h"

namespace fastseed {

inline bool is_real(Dtype dtype) {
  return dtype == Dtype::Float || dtype == Dtype::Double || dtype == Dtype::Half ||
         dtype == Dtype::BFloat16;
}

inline void check_exact_sum(const Tensor& total, const std::vector<Tensor>& values,
                            const std::vector<Tensor>& factors) {
  const char* op = "exact_sum";
  check_tensor(total, op, "total", Dtype::Long, {kExactSize}, total);
  STD_TORCH_CHECK(factors.empty() || factors.size() == values.size(),
                  "fastseed.exact_sum: factors must be none or as many as values");
  for (const std::vector<Tensor>* given : {&values, &factors}) {
    const char* name = given == &values ? "values" : "factors";
    for (size_t i = 0; i < given->size(); ++i) {
      const Tensor& tensor = (*given)[i];
      STD_TORCH_CHECK(is_real(tensor.scalar_type()), "fastseed.exact_sum: ", name,
                      " must be of dtype float16, bfloat16, float32, float64");
      STD_TORCH_CHECK(same_device(tensor, total), "fastseed.exact_sum: ", name,
                      " must be on the device of the total");
      check_memory(tensor, op, name);
      STD_TORCH_CHECK(
          tensor.scalar_type() == values[i].scalar_type() && tensor.numel() == values[i].numel(),
          "fastseed.exact_sum: factors must be of the dtypes and sizes of the values");
      check_disjoint(total, tensor, op, name);
    }
  }
}

// f(values, factors) of one tensor's numbers by their type; factors are null without any.
template <class F>
void for_terms(const Tensor& values, const std::vector<Tensor>& factors, size_t i, const F& f) {
  for_reals(values, "exact_sum", "values", [&](const auto* data) {
    f(data, factors.empty() ? nullptr : static_cast<decltype(data)>(factors[i].data_ptr()));
  });
}

}  // namespace fastseed
