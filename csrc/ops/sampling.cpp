// The operators that choose tokens, on the CPU.
#include <torch/csrc/stable/library.h>

#include "parallel.h"
#include "sampling_args.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 15;  // numbers that a second thread is worth waking for

// Rows, or parts of them, of which one thread has so many numbers at least.
int64_t grain_of(int64_t size) {
  return size >= kGrain ? 1 : kGrain / size;
}

void sampling_race(const Tensor& scores, const Tensor& tokens, const Tensor& numbers,
                   const Tensor& keys, const Tensor& positions, const Tensor& temperature,
                   const Tensor& threshold, int64_t first) {
  for_numbers(numbers, first, "sampling_race", [&](const auto& rows) {
    const RaceArgs args =
        race_args(scores, tokens, numbers, keys, positions, temperature, threshold);
    mark_written(scores);
    mark_written(tokens);
    const int64_t parts = args.out.parts;
    parallel(
        rows.rows * parts, grain_of((rows.size + parts - 1) / parts),
        [&](int64_t begin, int64_t end) { launch_race(rows, args.races, args.out, begin, end); });
  });
}

// The higher digits of a code that histograms of `digit` select by.
void check_prefixes(const DigitRows& digits, int64_t rows) {
  const int64_t end = int64_t{1} << kDigitBits * (kDigits - 1 - digits.digit);
  for (int64_t row = 0; row < rows; ++row) {
    STD_TORCH_CHECK(digits.prefixes[row] >= 0 && digits.prefixes[row] < end,
                    "fastseed.sampling_histogram: prefix must be in [0, ", end, ") for digit ",
                    digits.digit, ", got ", digits.prefixes[row]);
  }
}

void sampling_histogram(const Tensor& out, const Tensor& numbers, const Tensor& floor,
                        const Tensor& prefix, std::optional<Tensor> greatest,
                        const Tensor& temperature, int64_t digit, int64_t first) {
  for_numbers(numbers, first, "sampling_histogram", [&](const auto& rows) {
    const DigitRows digits = digit_rows(out, numbers, floor, prefix, greatest, temperature, digit);
    check_prefixes(digits, rows.rows);
    mark_written(out);
    int64_t* bins = static_cast<int64_t*>(out.data_ptr());
    parallel(rows.rows, grain_of(rows.size),
             [&](int64_t begin, int64_t end) { launch_histogram(rows, digits, bins, begin, end); });
  });
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("sampling_race", TORCH_BOX(&fastseed::sampling_race));
  m.impl("sampling_histogram", TORCH_BOX(&fastseed::sampling_histogram));
}
