// The operator that digests tensors, on the CPU.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <mutex>

#include "digest_args.h"
#include "parallel.h"

namespace fastseed {
namespace {

constexpr int64_t kGrain = 1 << 14;  // groups: 256 KiB, some ten microseconds

// sums[i] += the groups of entry i, modulo 2^128.
void digest(const Tensor& sums, std::vector<Tensor> memory, const Tensor& plan) {
  const std::vector<DigestEntry> entries = digest_entries(sums, memory, plan);
  mark_written(sums);
  if (memory.empty()) {
    return;
  }
  uint64_t* out = static_cast<uint64_t*>(sums.data_ptr());
  std::mutex mutex;
  parallel(entries.back().begin, kGrain, [&](int64_t begin, int64_t end) {
    auto entry = std::upper_bound(entries.begin(), entries.end() - 1, begin,
                                  [](int64_t at, const DigestEntry& e) { return at < e.begin; }) -
                 1;
    for (; begin < end; ++entry) {
      const int64_t stop = std::min(end, (entry + 1)->begin);
      uint64_t part[2] = {};
      launch_digest(entry->key, entry->rows, begin - entry->begin, stop - entry->begin, part);
      uint64_t* sum = out + 2 * (entry - entries.begin());
      std::lock_guard<std::mutex> lock(mutex);
      sum[0] += part[0];
      sum[1] += part[1] + (sum[0] < part[0] ? 1 : 0);
      begin = stop;
    }
  });
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("digest", TORCH_BOX(&fastseed::digest));
}
