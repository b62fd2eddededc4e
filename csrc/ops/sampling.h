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
  Arguments given(op, numbers);
  given.write(scores, "scores", Dtype::Double, {rows, kAnySize});
  const int64_t parts = scores.size(1);
  STD_TORCH_CHECK(parts >= 1, "fastseed.", op,
                  ": scores must be of shape (B, parts), parts at least 1");
  given.write(tokens, "tokens", Dtype::Long, {rows, parts});
  given.keep_apart(numbers, "numbers", bytes_between(numbers));
  given.read(keys, "keys", Dtype::UInt64, {rows, 2});
  given.read(positions, "positions", Dtype::Long, {rows});
  given.read(temperature, "temperature", Dtype::Double, {rows});
  given.read(threshold, "threshold", Dtype::Long, {rows});
  const RaceRows races{words_of(keys), longs_of(positions), doubles_of(temperature),
                       longs_of(threshold)};
  const WinnersOut out{doubles_of(scores), longs_of(tokens), parts};
  for_numbers(numbers, first, op, [&](const auto& found) {
    given.mark_written();
    Device::run(numbers, rows * parts, sampling_grain((found.size + parts - 1) / parts),
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
  given.write(out, "out", Dtype::Long, {rows});
  given.keep_apart(numbers, "numbers", bytes_between(numbers));
  given.read(floor, "floor", Dtype::Long, {rows});
  given.read(wanted, "wanted", Dtype::Double, {rows});
  given.read(temperature, "temperature", Dtype::Double, {rows});
  if (greatest.has_value()) {
    given.read(*greatest, "greatest", Dtype::Float, {rows});
  }
  const ThresholdRows search{
      longs_of(floor), doubles_of(wanted),
      greatest.has_value() ? static_cast<const float*>(greatest->data_ptr()) : nullptr,
      doubles_of(temperature), longs_of(out)};
  const int64_t together = Device::kIsCuda ? std::min(rows, kThresholdRows) : 0;
  const Tensor scratch = torch::stable::new_empty(out, {together * kThresholdScratch});
  for_numbers(numbers, first, op, [&](const auto& found) {
    given.mark_written();
    Device::run(out, rows, sampling_grain(found.size),
                [&](auto where) { launch_threshold(found, search, longs_of(scratch), where); });
  });
}

template <class Device>
void register_sampling(Library& m) {
  m.impl("sampling_race", TORCH_BOX(&sampling_race<Device>));
  m.impl("sampling_threshold", TORCH_BOX(&sampling_threshold<Device>));
}

}  // namespace fastseed
