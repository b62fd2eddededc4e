// The operators that compute the order of an epoch and its inverse, on the CPU.
#include <torch/csrc/stable/library.h>

#include "parallel.h"
#include "shuffle_args.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 12;  // positions that a second thread is worth waking for

void shuffle(const torch::stable::Tensor& out, int64_t lo, int64_t hi, int64_t n, int64_t start,
             int64_t stride) {
  const ShuffleJob job = shuffle_job(out, lo, hi, n, start, stride);
  mark_written(out);
  parallel(job.at.count, kGrain, [&](int64_t begin, int64_t end) {
    launch_shuffle(job.shuffle, Positions{job.at[begin], stride, end - begin}, job.out + begin);
  });
}

void shuffle_positions(const torch::stable::Tensor& out, const torch::stable::Tensor& samples,
                       int64_t lo, int64_t hi, int64_t n) {
  const PositionsJob job = positions_job(out, samples, lo, hi, n);
  mark_written(out);
  parallel(job.count, kGrain, [&](int64_t begin, int64_t end) {
    launch_shuffle_positions(job.shuffle, job.numbers + begin, end - begin, job.out + begin);
  });
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("shuffle", TORCH_BOX(&fastseed::shuffle));
  m.impl("shuffle_positions", TORCH_BOX(&fastseed::shuffle_positions));
}
