// The operator that digests tensors. One call takes all tensors of a model: row i of the plan
// describes the rows of bytes to read from tensor i (see fastseed/digest/tensors.py), or has a key
// and kWhole for all of a contiguous tensor.
#pragma once
#include <algorithm>
#include <iterator>
#include <vector>

#include "../core/digest.h"
#include "tensor_checks.h"

namespace fastseed {

constexpr int64_t kPlanColumns = 7;  // the key, and the six fields of DigestRows
constexpr int64_t kWhole = -1;       // in the column of row_bytes
constexpr int64_t kMostBytes = int64_t{1} << 60;

// Whether rows that begin at the first element of `memory` lie within its storage.
inline bool within(const DigestRows& rows, const Tensor& memory) {
  if (rows.rows == 0 || rows.row_bytes == 0) {
    return true;
  }
  const int64_t left = bytes_behind(memory) - rows.row_bytes;
  return left >= 0 && rows.stride >= 0 && (rows.rows == 1 || rows.stride <= left / (rows.rows - 1));
}

// All of a contiguous tensor: a row is its last dimension.
inline DigestRows rows_of(const Tensor& tensor) {
  check_memory(tensor, "digest", "memory");
  const auto* bytes = static_cast<const uint8_t*>(tensor.data_ptr());
  const auto element = static_cast<int64_t>(tensor.element_size());
  const int64_t row = element * (tensor.dim() > 0 ? tensor.size(tensor.dim() - 1) : 1);
  return {bytes, row, row > 0 ? bytes_of(tensor) / row : 0,
          row,   0,   static_cast<uint64_t>(row_groups(row))};
}

// The rows that a row of the plan describes, which must lie within the memory of its tensor.
inline DigestRows rows_of(const Tensor& tensor, const int64_t* row) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.data_ptr());
  const DigestRows rows{
      bytes, row[2], row[3], row[4], static_cast<uint64_t>(row[5]), static_cast<uint64_t>(row[6])};
  STD_TORCH_CHECK(static_cast<uintptr_t>(row[1]) == reinterpret_cast<uintptr_t>(bytes) &&
                      rows.row_bytes >= 0 && rows.row_bytes < kMostBytes && rows.rows >= 0 &&
                      within(rows, tensor),
                  "fastseed.digest: plan must name rows within the memory of their tensors");
  return rows;
}

// The plan of the launch, in the CPU's memory.
inline Tensor launch_plan(const Tensor& sums, const std::vector<Tensor>& memory, const Tensor& plan,
                          int64_t* tiles) {
  const auto count = static_cast<int64_t>(memory.size());
  STD_TORCH_CHECK(plan.is_cpu(), "fastseed.digest: plan must be on the CPU");
  const int64_t* row = checked<int64_t>(plan, "digest", "plan", {count, kPlanColumns}, plan);
  Arguments given("digest", sums);
  given.write<uint64_t>(sums, "sums", {count, 2});
  given.keep_apart(plan, "plan", bytes_of(plan));
  const Tensor made = torch::stable::new_empty(plan, {count, kDigestColumns});
  auto* out = static_cast<int64_t*>(made.data_ptr());
  int64_t groups = 0;
  for (const Tensor& tensor : memory) {
    STD_TORCH_CHECK(same_device(tensor, sums),
                    "fastseed.digest: memory must be on the device of the sums");
    const DigestRows rows = row[2] == kWhole ? rows_of(tensor) : rows_of(tensor, row);
    STD_TORCH_CHECK(
        rows.rows == 0 || row_groups(rows.row_bytes) <= (kMostBytes - groups) / rows.rows,
        "fastseed.digest: plan must have fewer than 2**60 groups");
    const int64_t own = rows.rows * row_groups(rows.row_bytes);
    given.keep_apart(tensor, "memory",
                     own == 0 ? 0 : (rows.rows - 1) * rows.stride + rows.row_bytes);
    const int64_t columns[kDigestColumns] = {
        row[0],
        static_cast<int64_t>(reinterpret_cast<intptr_t>(rows.bytes)),
        rows.row_bytes,
        rows.rows,
        rows.stride,
        static_cast<int64_t>(rows.group_number),
        static_cast<int64_t>(rows.group_stride),
        *tiles};
    out = std::copy(std::begin(columns), std::end(columns), out);
    *tiles += (own + kDigestTile - 1) / kDigestTile;
    groups += own;
    row += kPlanColumns;
  }
  given.mark_written();
  return made;
}

template <class Device>
void digest(const Tensor& sums, std::vector<Tensor> memory, const Tensor& plan) {
  constexpr int64_t kGrain = 1 << 4;  // tiles: 256 KiB, some ten microseconds
  int64_t tiles = 0;
  const Tensor made = launch_plan(sums, memory, plan, &tiles);
  const Tensor there = Device::copy(made, sums);
  const DigestPlan all{static_cast<int64_t*>(there.data_ptr()), made.size(0), tiles};
  auto* out = static_cast<uint64_t*>(sums.data_ptr());
  Device::run(sums, tiles, kGrain, [&](auto where) { launch_digest(all, out, where); });
}

template <class Device>
void register_digest(Library& m) {
  m.impl("digest", TORCH_BOX(&digest<Device>));
}

}  // namespace fastseed
