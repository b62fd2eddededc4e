// Arguments of the operators that choose tokens: checked tensors become the structs of
// kernels/sampling.h. Shared by the CPU and the CUDA operators.
#pragma once
#include "../kernels/sampling.h"
#include "tensor_checks.h"

namespace fastseed {

inline void check_row_values(const Tensor& values, Dtype dtype, int64_t rows, int64_t columns,
                             const Tensor& numbers, const char* op, const char* argument) {
  check_memory(values, op, argument);
  STD_TORCH_CHECK(values.scalar_type() == dtype, "fastseed.", op, ": ", argument,
                  " must be of dtype ", dtype_name(dtype));
  STD_TORCH_CHECK(values.dim() == (columns == 0 ? 1 : 2) && values.size(0) == rows &&
                      (columns == 0 || values.size(1) == columns),
                  "fastseed.", op, ": ", argument, " must have one entry for each of ", rows,
                  " rows");
  STD_TORCH_CHECK(same_device(values, numbers), "fastseed.", op, ": ", argument,
                  " must be on the device of the numbers");
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

// Calls `run` with the NumberRows of the dtype.
template <class F>
void for_numbers(const Tensor& numbers, int64_t first, const char* op, const F& run) {
  check_numbers(numbers, first, op);
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

struct RaceArgs {
  RaceRows races;
  WinnersOut out;
};

inline RaceArgs race_args(const Tensor& scores, const Tensor& tokens, const Tensor& numbers,
                          const Tensor& keys, const Tensor& positions, const Tensor& temperature,
                          const Tensor& threshold, int64_t role, bool weights) {
  const char* op = "sampling_race";
  const int64_t rows = numbers.size(0);
  STD_TORCH_CHECK(scores.dim() == 2 && scores.size(1) >= 1, "fastseed.", op,
                  ": scores must be of shape (B, parts), parts at least 1");
  const int64_t parts = scores.size(1);
  check_row_values(scores, Dtype::Double, rows, parts, numbers, op, "scores");
  check_row_values(tokens, Dtype::Long, rows, parts, numbers, op, "tokens");
  check_row_values(keys, Dtype::UInt64, rows, 2, numbers, op, "keys");
  check_row_values(positions, Dtype::Long, rows, 0, numbers, op, "positions");
  check_row_values(temperature, Dtype::Double, rows, 0, numbers, op, "temperature");
  check_row_values(threshold, Dtype::Long, rows, 0, numbers, op, "threshold");
  STD_TORCH_CHECK(role >= 0 && role < kRoles, "fastseed.", op, ": role must be in [0, 3], got ",
                  role);
  check_disjoint(scores, tokens, op, "tokens");
  for (const Tensor* written : {&scores, &tokens}) {
    check_disjoint(*written, numbers, bytes_between(numbers), op, "numbers");
    check_disjoint(*written, keys, op, "keys");
    check_disjoint(*written, positions, op, "positions");
    check_disjoint(*written, temperature, op, "temperature");
    check_disjoint(*written, threshold, op, "threshold");
  }
  return RaceArgs{
      RaceRows{static_cast<const uint64_t*>(keys.data_ptr()),
               static_cast<const int64_t*>(positions.data_ptr()),
               static_cast<const double*>(temperature.data_ptr()),
               static_cast<const int64_t*>(threshold.data_ptr()), static_cast<uint64_t>(role),
               weights ? Numbers::kWeights : Numbers::kLogits},
      WinnersOut{static_cast<double*>(scores.data_ptr()), static_cast<int64_t*>(tokens.data_ptr()),
                 parts}};
}

inline DigitRows digit_rows(const Tensor& out, const Tensor& numbers, const Tensor& floor,
                            const Tensor& prefix, const std::optional<Tensor>& greatest,
                            const Tensor& temperature, int64_t digit) {
  const char* op = "sampling_histogram";
  const int64_t rows = numbers.size(0);
  check_row_values(out, Dtype::Long, rows, kBins, numbers, op, "out");
  check_row_values(floor, Dtype::Long, rows, 0, numbers, op, "floor");
  check_row_values(prefix, Dtype::Long, rows, 0, numbers, op, "prefix");
  check_row_values(temperature, Dtype::Double, rows, 0, numbers, op, "temperature");
  check_disjoint(out, numbers, bytes_between(numbers), op, "numbers");
  check_disjoint(out, floor, op, "floor");
  check_disjoint(out, prefix, op, "prefix");
  check_disjoint(out, temperature, op, "temperature");
  if (greatest.has_value()) {
    check_row_values(*greatest, Dtype::Float, rows, 0, numbers, op, "greatest");
    check_disjoint(out, *greatest, op, "greatest");
  }
  STD_TORCH_CHECK(digit >= 0 && digit < kDigits, "fastseed.", op, ": digit must be in [0, 4], got ",
                  digit);
  return DigitRows{static_cast<const int64_t*>(floor.data_ptr()),
                   static_cast<const int64_t*>(prefix.data_ptr()),
                   greatest.has_value() ? static_cast<const float*>(greatest->data_ptr()) : nullptr,
                   static_cast<const double*>(temperature.data_ptr()), static_cast<int>(digit)};
}

}  // namespace fastseed
