// The operators that choose tokens.
#pragma once
#include <algorithm>
#include <optional>

#include "../core/sampling.h"
#include "tensor_checks.h"

namespace fastseed {

// Rows, or parts of them, of which one thread has so many numbers that a second is worth waking.
inline int64_t sampling_grain(int64_t size) {
  constexpr int64_t kGrain = 1 << 15;
  return size >= kGrain ? 1 : kGrain / size;
}

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
  for_types<float, Half, BFloat16>(numbers, op, "numbers", [&](const auto* data) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
    run(NumberRows<T>{data, numbers.stride(0), numbers.size(0), numbers.size(1), first});
  });
}

template <class Device>
void sampling_race(const Tensor& scores, const Tensor& tokens, const Tensor& numbers,
                   const Tensor& keys, const Tensor& positions, const Tensor& temperature,
                   const Tensor& threshold, int64_t first) {
  constexpr const char* op = "sampling_race";
  check_numbers(numbers, first, op);
  const int64_t rows = numbers.size(0);
  Arguments given(op, numbers);
  WinnersOut out{given.write<double>(scores, "scores", {rows, kAnySize}), nullptr, scores.size(1)};
  const int64_t parts = out.parts;
  STD_TORCH_CHECK(parts >= 1, "fastseed.", op,
                  ": scores must be of shape (B, parts), parts at least 1");
  out.tokens = given.write<int64_t>(tokens, "tokens", {rows, parts});
  given.keep_apart(numbers, "numbers", bytes_between(numbers));
  const RaceRows races{given.read<uint64_t>(keys, "keys", {rows, 2}),
                       given.read<int64_t>(positions, "positions", {rows}),
                       given.read<double>(temperature, "temperature", {rows}),
                       given.read<int64_t>(threshold, "threshold", {rows})};
  for_numbers(numbers, first, op, [&](const auto& found) {
    given.run<Device>(rows * parts, sampling_grain((found.size + parts - 1) / parts),
                      [&](auto where) { launch_race(found, races, out, where); });
  });
}

template <class Device>
void sampling_threshold(const Tensor& out, const Tensor& numbers, const Tensor& floor,
                        const Tensor& wanted, std::optional<Tensor> greatest,
                        const Tensor& temperature, int64_t first) {
  constexpr const char* op = "sampling_threshold";
  check_numbers(numbers, first, op);
  const int64_t rows = numbers.size(0);
  Arguments given(op, numbers);
  auto* found = given.write<int64_t>(out, "out", {rows});
  given.keep_apart(numbers, "numbers", bytes_between(numbers));
  const ThresholdRows search{given.read<int64_t>(floor, "floor", {rows}),
                             given.read<double>(wanted, "wanted", {rows}),
                             given.read<float>(greatest, "greatest", {rows}),
                             given.read<double>(temperature, "temperature", {rows}), found};
  const int64_t together = Device::kIsCuda ? std::min(rows, kThresholdRows) : 0;
  const Tensor scratch = torch::stable::new_empty(out, {together * kThresholdScratch});
  auto* bins = static_cast<int64_t*>(scratch.data_ptr());
  for_numbers(numbers, first, op, [&](const auto& given_rows) {
    given.run<Device>(rows, sampling_grain(given_rows.size),
                      [&](auto where) { launch_threshold(given_rows, search, bins, where); });
  });
}

template <class Device>
void register_sampling(Library& m) {
  m.impl("sampling_race", TORCH_BOX(&sampling_race<Device>));
  m.impl("sampling_threshold", TORCH_BOX(&sampling_threshold<Device>));
}

}  // namespace fastseed
