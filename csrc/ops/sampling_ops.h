// The operators that choose tokens, for any device: a Device gives the launches.
#pragma once
#include "../core/sampling.h"
#include "tensor_checks.h"

namespace fastseed {

// Bytes from the first number to the last one.
inline int64_t bytes_between(const Tensor& numbers) {
  const int64_t rows = numbers.size(0);
  return rows == 0 ? 0
                   : ((rows - 1) * numbers.stride(0) + numbers.size(1)) *
                         static_cast<int64_t>(numbers.element_size());
}

// Rows of consecutive numbers that may lie apart.
inline void check_numbers(const Tensor& numbers, int64_t first, const char* op) {
  STD_TORCH_CHECK(numbers.dim() == 2 && numbers.size(1) >= 1, "fastseed.", op,
                  ": numbers must be of shape (B, V), V at least 1");
  const int64_t rows = numbers.size(0), size = numbers.size(1);
  STD_TORCH_CHECK(first >= 0 && size <= kMaxTokens && first <= kMaxTokens - size, "fastseed.", op,
                  ": tokens must be below 2**24");
  STD_TORCH_CHECK(size == 1 || numbers.stride(1) == 1, "fastseed.", op,
                  ": the numbers of a row must be consecutive");
  STD_TORCH_CHECK(
      rows == 0 || (numbers.stride(0) >= 0 && bytes_between(numbers) <= bytes_behind(numbers)),
      "fastseed.", op, ": numbers must have memory for all of its elements");
}

// Calls `run` with the NumberRows of the dtype, of numbers that were checked.
template <class F>
void for_numbers(const Tensor& numbers, int64_t first, const char* op, const F& run) {
  const auto rows = [&](auto* data) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    return NumberRows<T>{data, numbers.stride(0), numbers.size(0), numbers.size(1), first};
  };
  const void* data = numbers.data_ptr();
  switch (numbers.scalar_type()) {
    case Dtype::Float:
      return run(rows(static_cast<const float*>(data)));
    case Dtype::Half:
      return run(rows(static_cast<const Half*>(data)));
    case Dtype::BFloat16:
      return run(rows(static_cast<const BFloat16*>(data)));
    default:
      STD_TORCH_CHECK(false, "fastseed.", op,
                      ": numbers must be of dtype float32, float16 or bfloat16");
  }
}

template <class Device>
void sampling_race(const Tensor& scores, const Tensor& tokens, const Tensor& numbers,
                   const Tensor& keys, const Tensor& positions, const Tensor& temperature,
                   const Tensor& threshold, int64_t first) {
  constexpr const char* op = "sampling_race";
  check_numbers(numbers, first, op);
  const int64_t rows = numbers.size(0);
  check_tensor(scores, op, "scores", Dtype::Double, {rows, kAnySize}, numbers);
  const int64_t parts = scores.size(1);
  STD_TORCH_CHECK(parts >= 1, "fastseed.", op,
                  ": scores must be of shape (B, parts), parts at least 1");
  check_tensor(tokens, op, "tokens", Dtype::Long, {rows, parts}, numbers);
  check_tensor(keys, op, "keys", Dtype::UInt64, {rows, 2}, numbers);
  check_tensor(positions, op, "positions", Dtype::Long, {rows}, numbers);
  check_tensor(temperature, op, "temperature", Dtype::Double, {rows}, numbers);
  check_tensor(threshold, op, "threshold", Dtype::Long, {rows}, numbers);
  check_disjoint(scores, tokens, op, "tokens");
  for (const Tensor* written : {&scores, &tokens}) {
    check_disjoint(*written, numbers, bytes_between(numbers), op, "numbers");
    check_disjoint(*written, keys, op, "keys");
    check_disjoint(*written, positions, op, "positions");
    check_disjoint(*written, temperature, op, "temperature");
    check_disjoint(*written, threshold, op, "threshold");
  }
  const RaceRows races{words_of(keys), longs_of(positions),
                       static_cast<const double*>(temperature.data_ptr()), longs_of(threshold)};
  const WinnersOut out{static_cast<double*>(scores.data_ptr()), longs_of(tokens), parts};
  for_numbers(numbers, first, op, [&](const auto& given) {
    mark_written(scores);
    mark_written(tokens);
    Device::race(given, races, out, numbers);
  });
}

template <class Device>
void sampling_threshold(const Tensor& out, const Tensor& numbers, const Tensor& floor,
                        const Tensor& wanted, std::optional<Tensor> greatest,
                        const Tensor& temperature, int64_t first) {
  constexpr const char* op = "sampling_threshold";
  check_numbers(numbers, first, op);
  const int64_t rows = numbers.size(0);
  check_tensor(out, op, "out", Dtype::Long, {rows}, numbers);
  check_tensor(floor, op, "floor", Dtype::Long, {rows}, numbers);
  check_tensor(wanted, op, "wanted", Dtype::Double, {rows}, numbers);
  check_tensor(temperature, op, "temperature", Dtype::Double, {rows}, numbers);
  check_disjoint(out, numbers, bytes_between(numbers), op, "numbers");
  check_disjoint(out, floor, op, "floor");
  check_disjoint(out, wanted, op, "wanted");
  check_disjoint(out, temperature, op, "temperature");
  if (greatest.has_value()) {
    check_tensor(*greatest, op, "greatest", Dtype::Float, {rows}, numbers);
    check_disjoint(out, *greatest, op, "greatest");
  }
  const ThresholdRows search{
      longs_of(floor), static_cast<const double*>(wanted.data_ptr()),
      greatest.has_value() ? static_cast<const float*>(greatest->data_ptr()) : nullptr,
      static_cast<const double*>(temperature.data_ptr()), longs_of(out)};
  for_numbers(numbers, first, op, [&](const auto& given) {
    mark_written(out);
    Device::threshold(given, search, out);
  });
}

}  // namespace fastseed

#define FS_REGISTER_SAMPLING(m, Device)                                   \
  (m).impl("sampling_race", TORCH_BOX(&fastseed::sampling_race<Device>)); \
  (m).impl("sampling_threshold", TORCH_BOX(&fastseed::sampling_threshold<Device>))
