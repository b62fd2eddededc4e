// The operator of perturbations.
#pragma once
#include "../core/perturb.h"
#include "draws.h"

namespace fastseed {

// The layouts are, tensor by tensor: offset, count of dimensions, sizes, strides.
template <class Device>
void perturb(std::vector<Tensor> tensors, std::vector<Tensor> bytes, std::vector<Tensor> lists,
             const Tensor& keys, const Tensor& scales, std::vector<int64_t> layouts,
             bool rademacher, int64_t number) {
  constexpr const char* kOp = "perturb";
  constexpr int64_t kGrain = 1 << 14;  // numbers that a second thread is worth waiting for
  const auto action = static_cast<Perturb>(number);
  const bool is_recorded = action == Perturb::kRecord;
  const bool has_bytes = is_recorded || action == Perturb::kUndo;
  const auto count = static_cast<int64_t>(tensors.size());
  const auto* factors = checked<double>(scales, kOp, "scales", {kAnySize}, keys);
  const int64_t entries = scales.size(0);
  const auto* words = checked<uint64_t>(keys, kOp, "keys", {count * entries, 2}, keys);
  STD_TORCH_CHECK(number >= 0 && action <= Perturb::kUndo && (entries == 1 || !has_bytes) &&
                      bytes.size() == (has_bytes ? tensors.size() : 0) &&
                      lists.size() == (is_recorded ? tensors.size() : 0),
                  "fastseed.perturb: action must fit the scales, bytes and lists, got ", number);
  std::vector<Layout> found;
  std::vector<Arguments> all;
  auto next = layouts.begin();
  for (size_t i = 0; i < tensors.size(); ++i) {
    for_reals(tensors[i], kOp, "tensors", [](auto*) {});
    Arguments given(kOp, keys);
    given.write_any(tensors[i], "tensors");
    if (has_bytes) {
      STD_TORCH_CHECK(
          bytes[i].scalar_type() == Dtype::Char && bytes[i].numel() == tensors[i].numel(),
          "fastseed.perturb: bytes must be torch.int8, as many as numbers");
      given.write_any(bytes[i], "bytes");
    }
    if (is_recorded) {
      given.write<int64_t>(lists[i], "lists", {kAnySize, 2});
      STD_TORCH_CHECK(lists[i].size(0) > 0, "fastseed.perturb: lists must have a row or more");
    }
    given.keep_apart(keys, "keys", bytes_of(keys));
    given.keep_apart(scales, "scales", bytes_of(scales));
    all.push_back(given);
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
    all[i].mark_written();
    for_reals(tensors[i], kOp, "tensors", [&](auto* data) {
      const bool is_each = action == Perturb::kEach;
      for (int64_t e = 0; e < (is_each ? entries : 1) && entries * tensors[i].numel() > 0; ++e) {
        const Perturbation<std::remove_pointer_t<decltype(data)>> what{
            is_each ? Perturb::kAdd : action,
            rademacher,
            is_each ? 1 : entries,
            words + 2 * (entries * static_cast<int64_t>(i) + e),
            factors + e,
            data,
            has_bytes ? static_cast<int8_t*>(bytes[i].data_ptr()) : nullptr,
            is_recorded ? static_cast<int64_t*>(lists[i].data_ptr()) : nullptr,
            is_recorded ? lists[i].size(0) - 1 : 0};
        Device::run(tensors[i], tensors[i].numel(), kGrain,
                    [&](auto where) { launch_perturb(what, found[i], where); });
      }
    });
  }
}

template <class Device>
void register_perturb(Library& m) {
  m.impl("perturb", TORCH_BOX(&perturb<Device>));
}

}  // namespace fastseed
