// Which values of its draws an output holds, as the operators are told.
#pragma once
#include <vector>

#include "../core/strided_layout.h"
#include "tensor_checks.h"

namespace fastseed {

constexpr int64_t kMostValues = int64_t{1} << 56;  // of a stream, whose positions count as far

// Which values each of `count` rows of `total` values in all holds. Neighbouring dimensions that
// are consecutive in the logical tensor become one.
inline Layout layout_of(int64_t total, int64_t count, const std::vector<int64_t>& sizes,
                        const std::vector<int64_t>& strides, int64_t offset, const char* op) {
  STD_TORCH_CHECK(sizes.size() == strides.size(), "fastseed.", op,
                  ": strides must be as many as sizes");
  STD_TORCH_CHECK(offset >= 0 && offset <= kMostValues - (total > 0 ? 1 : 0), "fastseed.", op,
                  ": offset must be in [0, 2**56), got ", offset);
  Layout layout{};
  layout.offset = offset;
  layout.runs = 1;
  if (total == 0) {
    return layout;
  }
  STD_TORCH_CHECK(count != 0 && total % count == 0, "fastseed.", op,
                  ": out must have as many elements for each key, got ", total, " for ", count);
  if (sizes.empty()) {
    STD_TORCH_CHECK(total / count <= kMostValues - offset, "fastseed.", op,
                    ": out must hold values below 2**56");
    layout.length = total / count;
    return layout;
  }
  std::vector<int64_t> dims, steps;
  int64_t product = 1;
  int64_t last = offset;  // the greatest value so far
  for (size_t d = 0; d < sizes.size(); ++d) {
    STD_TORCH_CHECK(sizes[d] >= 1 && sizes[d] <= total / product && strides[d] >= 0, "fastseed.",
                    op, ": sizes must be those of a row of ", total / count,
                    " elements, and strides at least 0");
    product *= sizes[d];
    if (sizes[d] == 1) {
      continue;
    }
    STD_TORCH_CHECK(strides[d] <= (kMostValues - 1 - last) / (sizes[d] - 1), "fastseed.", op,
                    ": sizes and strides must name values below 2**56");
    last += (sizes[d] - 1) * strides[d];
    if (!dims.empty() && steps.back() == sizes[d] * strides[d]) {
      dims.back() *= sizes[d];
      steps.back() = strides[d];
    } else {
      dims.push_back(sizes[d]);
      steps.push_back(strides[d]);
    }
  }
  STD_TORCH_CHECK(product == total / count, "fastseed.", op, ": sizes must be those of a row of ",
                  total / count, " elements, got ", product);
  layout.length = 1;
  if (!dims.empty() && steps.back() == 1) {
    layout.length = dims.back();
    dims.pop_back();
    steps.pop_back();
  }
  STD_TORCH_CHECK(dims.size() <= static_cast<size_t>(Layout::kMaxDims), "fastseed.", op,
                  ": sizes must be of at most ", Layout::kMaxDims + 1, " dimensions");
  layout.dims = static_cast<int>(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    layout.sizes[d] = dims[d];
    layout.strides[d] = steps[d];
    layout.runs *= dims[d];
  }
  return layout;
}

}  // namespace fastseed
