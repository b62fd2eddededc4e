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

void sampling_threshold(const Tensor& out, const Tensor& numbers, const Tensor& floor,
                        const Tensor& wanted, std::optional<Tensor> greatest,
                        const Tensor& temperature, int64_t first) {
  for_numbers(numbers, first, "sampling_threshold", [&](const auto& rows) {
    const ThresholdRows search = threshold_rows(out, numbers, floor, wanted, greatest, temperature);
    mark_written(out);
    parallel(rows.rows, grain_of(rows.size),
             [&](int64_t begin, int64_t end) { launch_threshold(rows, search, begin, end); });
  });
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("sampling_race", TORCH_BOX(&fastseed::sampling_race));
  m.impl("sampling_threshold", TORCH_BOX(&fastseed::sampling_threshold));
}
