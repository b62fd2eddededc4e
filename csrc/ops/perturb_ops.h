// The operator of perturbations, for any device: a Device gives the launch.
#pragma once
#include "../core/perturb.h"
#include "draw_args.h"

namespace fastseed {

// Device::perturb(perturbation, layout, tensor) launches for a tensor of more than 0 elements. The
// layouts are, tensor by tensor: offset, count of dimensions, sizes, strides.
template <class Device>
void perturb(std::vector<Tensor> tensors, std::vector<Tensor> bytes, std::vector<Tensor> lists,
             const Tensor& keys, const Tensor& scales, std::vector<int64_t> layouts,
             bool rademacher, int64_t number) {
  constexpr const char* kOp = "perturb";
  const auto action = static_cast<Perturb>(number);
  const bool is_recorded = action == Perturb::kRecord;
  const bool has_bytes = is_recorded || action == Perturb::kUndo;
  const auto count = static_cast<int64_t>(tensors.size());
  check_tensor(scales, kOp, "scales", Dtype::Double, {kAnySize}, keys);
  const int64_t entries = scales.size(0);
  check_tensor(keys, kOp, "keys", Dtype::UInt64, {count * entries, 2}, keys);
  STD_TORCH_CHECK(number >= 0 && action <= Perturb::kUndo && (entries == 1 || !has_bytes) &&
                      bytes.size() == (has_bytes ? tensors.size() : 0) &&
                      lists.size() == (is_recorded ? tensors.size() : 0),
                  "fastseed.perturb: action must fit the scales, bytes and lists, got ", number);
  std::vector<Layout> found;
  auto next = layouts.begin();
  for (size_t i = 0; i < tensors.size(); ++i) {
    for_reals(tensors[i], kOp, "tensors", [](auto*) {});
    std::vector<Tensor> written{tensors[i]};
    if (has_bytes) {
      STD_TORCH_CHECK(
          bytes[i].scalar_type() == Dtype::Char && bytes[i].numel() == tensors[i].numel(),
          "fastseed.perturb: bytes must be torch.int8, as many as numbers");
      written.push_back(bytes[i]);
    }
    if (is_recorded) {
      check_tensor(lists[i], kOp, "lists", Dtype::Long, {kAnySize, 2}, keys);
      STD_TORCH_CHECK(lists[i].size(0) > 0, "fastseed.perturb: lists must have a row or more");
      written.push_back(lists[i]);
    }
    for (size_t a = 0; a < written.size(); ++a) {
      STD_TORCH_CHECK(same_device(written[a], keys),
                      "fastseed.perturb: tensors must be on the device of the keys");
      check_memory(written[a], kOp, "what is written");
      check_disjoint(written[a], keys, kOp, "keys");
      check_disjoint(written[a], scales, kOp, "scales");
      for (size_t b = 0; b < a; ++b) {
        check_disjoint(written[a], written[b], kOp, "bytes and lists");
      }
    }
    const int64_t left = layouts.end() - next;
    STD_TORCH_CHECK(left >= 2 && next[1] >= 0 && next[1] <= (left - 2) / 2,
                    "fastseed.perturb: layouts must be one for each tensor");
    const auto sizes = next + 2, strides = sizes + next[1], end = strides + next[1];
    found.push_back(layout_of(tensors[i].numel(), 1, {sizes, strides}, {strides, end}, *next, kOp));
    check_words(Normal<double>{}, found.back(), kOp);
    next = end;
  }
  STD_TORCH_CHECK(next == layouts.end(), "fastseed.perturb: layouts must be one for each tensor");
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const std::vector<Tensor>* written : {&tensors, &bytes, &lists}) {
      if (!written->empty()) {
        mark_written((*written)[i]);
      }
    }
    for_reals(tensors[i], kOp, "tensors", [&](auto* data) {
      const bool is_each = action == Perturb::kEach;
      for (int64_t e = 0; e < (is_each ? entries : 1) && entries * tensors[i].numel() > 0; ++e) {
        Device::perturb(
            Perturbation<std::remove_pointer_t<decltype(data)>>{
                is_each ? Perturb::kAdd : action, rademacher, is_each ? 1 : entries,
                words_of(keys) + 2 * (entries * static_cast<int64_t>(i) + e),
                static_cast<const double*>(scales.data_ptr()) + e, data,
                has_bytes ? static_cast<int8_t*>(bytes[i].data_ptr()) : nullptr,
                is_recorded ? longs_of(lists[i]) : nullptr, is_recorded ? lists[i].size(0) - 1 : 0},
            found[i], tensors[i]);
      }
    });
  }
}

}  // namespace fastseed
