// Digests of tensors, behind the stable ABI. Which memory is read is said by a plan, because one
// call takes all the tensors of a model; fastseed/digest.py makes it and holds the tensors.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "../cpu/digest.h"
#include "parallel.h"

namespace fastseed {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr int64_t kColumns = 7;
constexpr int64_t kGrain = 1 << 14;  // groups: 256 KiB, some ten microseconds

struct Entry {
  uint64_t key;
  DigestRows rows;
  int64_t begin;  // the first of its groups, counted over all entries
};

int64_t groups_of(const DigestRows& rows) {
  return rows.rows * row_groups(rows.row_bytes);
}

std::vector<Entry> read_plan(const Tensor& plan) {
  STD_TORCH_CHECK(plan.scalar_type() == ScalarType::Long && plan.dim() == 2 &&
                      plan.size(1) == kColumns && plan.is_contiguous(),
                  "fastseed.digest: plan must be a contiguous tensor of shape (n, 7), torch.int64");
  const int64_t* row = static_cast<const int64_t*>(plan.data_ptr());
  std::vector<Entry> entries;
  int64_t groups = 0;
  for (int64_t i = 0; i < plan.size(0); ++i, row += kColumns) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(row[1]));
    const DigestRows rows{bytes,
                          row[2],
                          row[3],
                          row[4],
                          static_cast<uint64_t>(row[5]),
                          static_cast<uint64_t>(row[6])};
    STD_TORCH_CHECK(row[2] >= 0 && row[3] >= 0, "fastseed.digest: plan must not be negative");
    entries.push_back(Entry{static_cast<uint64_t>(row[0]), rows, groups});
    groups += groups_of(rows);
  }
  entries.push_back(Entry{0, DigestRows{}, groups});
  return entries;
}

// sums[i] += the groups of entry i, modulo 2^128.
void digest(const Tensor& sums, const Tensor& plan) {
  const std::vector<Entry> entries = read_plan(plan);
  const int64_t n = static_cast<int64_t>(entries.size()) - 1;
  STD_TORCH_CHECK(
      sums.scalar_type() == ScalarType::UInt64 && sums.dim() == 2 && sums.size(0) == n &&
          sums.size(1) == 2 && sums.is_contiguous(),
      "fastseed.digest: sums must be a contiguous tensor of shape (n, 2), torch.uint64");
  uint64_t* out = static_cast<uint64_t*>(sums.data_ptr());
  std::mutex mutex;
  parallel(entries.back().begin, kGrain, [&](int64_t begin, int64_t end) {
    auto entry = std::upper_bound(entries.begin(), entries.end() - 1, begin,
                                  [](int64_t at, const Entry& e) { return at < e.begin; }) -
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

STABLE_TORCH_LIBRARY_FRAGMENT(fastseed, m) {
  m.def("digest(Tensor(a!) sums, Tensor plan) -> ()");
  m.def("digest_tiles(Tensor(a!) sums, Tensor plan, int tiles) -> ()");  // ops_cuda.cpp
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("digest", TORCH_BOX(&fastseed::digest));
}
