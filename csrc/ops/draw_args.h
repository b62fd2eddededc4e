// The arguments of the draw operators, checked once, the same for every device. Uses the stable ABI
// alone.
#pragma once
#include <optional>
#include <type_traits>
#include <vector>

#include "../core/draw.h"
#include "tensor_checks.h"

namespace fastseed {

inline Streams streams_of(const Tensor& out, const Tensor& keys,
                          const std::optional<Tensor>& positions, const char* op) {
  check_tensor(keys, op, "keys", Dtype::UInt64, {kAnySize, 2}, out);
  check_memory(out, op, "out");
  check_disjoint(out, keys, op, "keys");
  if (positions.has_value()) {
    check_tensor(*positions, op, "positions", Dtype::Long, {keys.size(0)}, out);
    check_disjoint(out, *positions, op, "positions");
  }
  return Streams{words_of(keys), positions.has_value() ? longs_of(*positions) : nullptr,
                 keys.size(0)};
}

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

// Words are counted as far as values are, so that no retry has the counter of another word.
template <class Distribution>
void check_words(const Distribution&, const Layout& layout, const char* op) {
  STD_TORCH_CHECK(layout.length == 0 || layout.start(layout.runs - 1) + layout.length <=
                                            kMostValues / Distribution::kWords,
                  "fastseed.", op, ": out must hold values of words below 2**56");
}

template <class T>
uint64_t modulus_by(T range) {  // 2^32, or 2^64, modulo range
  return static_cast<T>(T{0} - range) % range;
}

// Calls `draw(distribution, typed output)` with the distribution of this operator for the dtype of
// `out`. One for each operator; `Draw` is the launch on one device.
template <template <class> class D, class Draw, class... Parameters>
void for_real(const Tensor& out, const char* op, const Draw& draw, Parameters... parameters) {
  for_reals(out, op, "out", [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    draw(D<T>{static_cast<typename Compute<T>::Type>(parameters)...}, data);
  });
}

template <class Draw>
void for_bits(const Tensor& out, const Draw& draw) {
  if (out.scalar_type() == Dtype::UInt32) {
    return draw(Bits<uint32_t>{}, static_cast<uint32_t*>(out.data_ptr()));
  }
  STD_TORCH_CHECK(out.scalar_type() == Dtype::UInt64,
                  "fastseed.draw_bits: out must be of dtype uint32 or uint64");
  draw(Bits<uint64_t>{}, static_cast<uint64_t*>(out.data_ptr()));
}

template <class Draw>
void for_bernoulli(const Tensor& out, int64_t threshold, const Draw& draw) {
  STD_TORCH_CHECK(threshold >= 0 && threshold <= int64_t{1} << 32,
                  "fastseed.draw_bernoulli: threshold must be in [0, 2**32], got ", threshold);
  const uint64_t t = static_cast<uint64_t>(threshold);
  if (out.scalar_type() == Dtype::Bool || out.scalar_type() == Dtype::Byte) {
    return draw(Bernoulli<uint8_t>{t, 0, 1}, static_cast<uint8_t*>(out.data_ptr()));
  }
  for_reals(out, "draw_bernoulli", "an out that is not bool or uint8", [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    using Real = typename Compute<T>::Type;
    draw(Bernoulli<T>{t, Rounded<T>::of(Real{0}), Rounded<T>::of(Real{1})}, data);
  });
}

template <class Draw>
void for_randint(const Tensor& out, int64_t low, int64_t signed_range, const Draw& draw) {
  const uint64_t range = static_cast<uint64_t>(signed_range);
  STD_TORCH_CHECK(range != 0, "fastseed.draw_randint: range must be at least 1, got 0");
  void* data = out.data_ptr();
  if (range >> 32 != 0) {
    STD_TORCH_CHECK(out.scalar_type() == Dtype::Long,
                    "fastseed.draw_randint: out must be of dtype int64 for a range from 2**32 on");
    return draw(RandIntWide<int64_t>{low, range, modulus_by(range)}, static_cast<int64_t*>(data));
  }
  const uint32_t narrow = static_cast<uint32_t>(range);
  const uint32_t threshold = static_cast<uint32_t>(modulus_by(narrow));
  switch (out.scalar_type()) {
    case Dtype::Byte:
      return draw(RandIntNarrow<uint8_t>{low, narrow, threshold}, static_cast<uint8_t*>(data));
    case Dtype::Int:
      return draw(RandIntNarrow<int32_t>{low, narrow, threshold}, static_cast<int32_t*>(data));
    case Dtype::Long:
      return draw(RandIntNarrow<int64_t>{low, narrow, threshold}, static_cast<int64_t*>(data));
    default:
      STD_TORCH_CHECK(false, "fastseed.draw_randint: out must be of dtype uint8, int32 or int64");
  }
}

}  // namespace fastseed
