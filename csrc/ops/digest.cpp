// Digests of tensors, behind the stable ABI. One call takes all tensors of a model: row i of the
// plan describes the rows of bytes to read from tensor i (see fastseed/debug/tensor_digest.py), or
// has a key and kWhole for all of a contiguous tensor.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "../cpu/digest.h"
#include "parallel.h"
#include "tensor_checks.h"

namespace fastseed {
namespace {

constexpr int64_t kColumns = 7;  // of a plan: the key, and the six fields of DigestRows
constexpr int64_t kWhole = -1;   // in the column of row_bytes
constexpr int64_t kMostBytes = int64_t{1} << 60;
constexpr int64_t kGrain = 1 << 14;  // groups: 256 KiB, some ten microseconds

struct Entry {
  uint64_t key;
  DigestRows rows;
  int64_t begin;  // the first of its groups, counted over all entries
};

int64_t groups_of(const DigestRows& rows) {
  return rows.rows * row_groups(rows.row_bytes);
}

// Whether rows that begin at the first element of `memory` lie within its storage.
bool within(const DigestRows& rows, const Tensor& memory) {
  if (rows.rows == 0 || rows.row_bytes == 0) {
    return true;
  }
  const int64_t left = bytes_behind(memory) - rows.row_bytes;
  return left >= 0 && rows.stride >= 0 && (rows.rows == 1 || rows.stride <= left / (rows.rows - 1));
}

// All of a contiguous tensor: a row is its last dimension.
DigestRows rows_of(const Tensor& tensor) {
  check_memory(tensor, "digest", "memory");
  const auto* bytes = static_cast<const uint8_t*>(tensor.data_ptr());
  const auto element = static_cast<int64_t>(tensor.element_size());
  const int64_t row = element * (tensor.dim() > 0 ? tensor.size(tensor.dim() - 1) : 1);
  return {bytes, row, row > 0 ? bytes_of(tensor) / row : 0,
          row,   0,   static_cast<uint64_t>(row_groups(row))};
}

// The rows that a row of the plan describes, which must lie within the memory of its tensor.
DigestRows rows_of(const Tensor& tensor, const int64_t* row) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.data_ptr());
  const DigestRows rows{
      bytes, row[2], row[3], row[4], static_cast<uint64_t>(row[5]), static_cast<uint64_t>(row[6])};
  STD_TORCH_CHECK(static_cast<uintptr_t>(row[1]) == reinterpret_cast<uintptr_t>(bytes) &&
                      rows.row_bytes >= 0 && rows.row_bytes < kMostBytes && rows.rows >= 0 &&
                      within(rows, tensor),
                  "fastseed.digest: plan must name rows within the memory of their tensors");
  return rows;
}

std::vector<Entry> read_plan(const std::vector<Tensor>& memory, const Tensor& plan) {
  STD_TORCH_CHECK(plan.scalar_type() == Dtype::Long && plan.dim() == 2 &&
                      plan.size(1) == kColumns &&
                      plan.size(0) == static_cast<int64_t>(memory.size()),
                  "fastseed.digest: plan must be torch.int64 of shape (n, 7), one row for each of "
                  "the n tensors of memory");
  check_memory(plan, "digest", "plan");
  const int64_t* row = static_cast<const int64_t*>(plan.data_ptr());
  std::vector<Entry> entries;
  entries.reserve(memory.size() + 1);
  int64_t groups = 0;
  for (const Tensor& tensor : memory) {
    const DigestRows rows = row[2] == kWhole ? rows_of(tensor) : rows_of(tensor, row);
    STD_TORCH_CHECK(
        rows.rows == 0 || row_groups(rows.row_bytes) <= (kMostBytes - groups) / rows.rows,
        "fastseed.digest: plan must have fewer than 2**60 groups");
    entries.push_back(Entry{static_cast<uint64_t>(row[0]), rows, groups});
    groups += groups_of(rows);
    row += kColumns;
  }
  entries.push_back(Entry{0, DigestRows{}, groups});
  return entries;
}

// sums[i] += the groups of entry i, modulo 2^128.
void digest(const Tensor& sums, std::vector<Tensor> memory, const Tensor& plan) {
  const std::vector<Entry> entries = read_plan(memory, plan);
  STD_TORCH_CHECK(sums.scalar_type() == Dtype::UInt64 && sums.dim() == 2 &&
                      sums.size(0) == plan.size(0) && sums.size(1) == 2,
                  "fastseed.digest: sums must be torch.uint64 of shape (n, 2)");
  check_memory(sums, "digest", "sums");
  mark_written(sums);
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

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("digest", TORCH_BOX(&fastseed::digest));
}
