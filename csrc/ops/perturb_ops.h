// The operator of perturbations, for any device: a Device gives the launch.
#pragma once
#include "../kernels/perturb.h"
#include "draw_args.h"

namespace fastseed {

// Device::perturb(perturbation, layout, tensor) launches for a tensor of more than 0 elements. The
// layouts are, tensor by tensor: offset, count of dimensions, sizes, strides.
template <class Device>
struct PerturbOps {
  static constexpr const char* kOp = "perturb";

  static void perturb(std::vector<Tensor> tensors, std::vector<Tensor> bytes,
                      std::vector<Tensor> lists, const Tensor& keys, const Tensor& scales,
                      std::vector<int64_t> layouts, bool rademacher, int64_t mode) {
    STD_TORCH_CHECK(mode >= 0 && mode <= static_cast<int64_t>(PerturbMode::kUndo),
                    "fastseed.perturb: mode must be in [0, 3], got ", mode);
    const auto what = static_cast<PerturbMode>(mode);
    const size_t count = tensors.size();
    const bool is_undone = what == PerturbMode::kRecord || what == PerturbMode::kUndo;
    STD_TORCH_CHECK(bytes.size() == (is_undone ? count : 0) &&
                        lists.size() == (what == PerturbMode::kRecord ? count : 0),
                    "fastseed.perturb: bytes and lists must be those that the mode writes");
    check_tensor(scales, kOp, "scales", Dtype::Double, {kAnySize}, keys);
    const int64_t entries = scales.size(0);
    check_tensor(keys, kOp, "keys", Dtype::UInt64, {static_cast<int64_t>(count) * entries, 2},
                 keys);
    STD_TORCH_CHECK(!is_undone || entries == 1, "fastseed.perturb: scales must be one number");
    std::vector<Layout> found;
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      found.push_back(next_layout(tensors[i], layouts, at));
      check_written(tensors[i], keys, scales, "tensors");
      if (is_undone) {
        STD_TORCH_CHECK(
            bytes[i].scalar_type() == Dtype::Char && bytes[i].numel() == tensors[i].numel(),
            "fastseed.perturb: bytes must be torch.int8, as many as numbers");
        check_written(bytes[i], keys, scales, "bytes");
        check_disjoint(tensors[i], bytes[i], kOp, "bytes");
      }
      if (what == PerturbMode::kRecord) {
        check_tensor(lists[i], kOp, "lists", Dtype::Long, {kAnySize, 2}, keys);
        STD_TORCH_CHECK(lists[i].size(0) > 0, "fastseed.perturb: lists must have a row or more");
        check_written(lists[i], keys, scales, "lists");
        check_disjoint(tensors[i], lists[i], kOp, "lists");
        check_disjoint(bytes[i], lists[i], kOp, "lists");
      }
    }
    STD_TORCH_CHECK(at == layouts.size(), "fastseed.perturb: layouts must be one for each tensor");
    for (size_t i = 0; i < count; ++i) {
      for_reals(tensors[i], kOp, "tensors", [&](auto* data) {
        using T = std::remove_pointer_t<decltype(data)>;
        const bool is_recorded = what == PerturbMode::kRecord;
        if (is_recorded) {
          mark_written(bytes[i]);
          mark_written(lists[i]);
        }
        mark_written(tensors[i]);
        const Perturbation<T> one{what,
                                  rademacher,
                                  entries,
                                  words_of(keys) + 2 * entries * static_cast<int64_t>(i),
                                  static_cast<const double*>(scales.data_ptr()),
                                  data,
                                  is_undone ? static_cast<int8_t*>(bytes[i].data_ptr()) : nullptr,
                                  is_recorded ? longs_of(lists[i]) : nullptr,
                                  is_recorded ? lists[i].size(0) - 1 : 0};
        if (tensors[i].numel() > 0 && entries > 0) {
          Device::perturb(one, found[i], tensors[i]);
        }
      });
    }
  }

 private:
  static void check_written(const Tensor& tensor, const Tensor& keys, const Tensor& scales,
                            const char* argument) {
    STD_TORCH_CHECK(same_device(tensor, keys), "fastseed.perturb: ", argument,
                    " must be on the device of the keys");
    check_memory(tensor, kOp, argument);
    check_disjoint(tensor, keys, kOp, "keys");
    check_disjoint(tensor, scales, kOp, "scales");
  }

  static Layout next_layout(const Tensor& tensor, const std::vector<int64_t>& layouts, size_t& at) {
    for_reals(tensor, kOp, "tensors", [](auto*) {});
    const bool begins = layouts.size() - at >= 2 && layouts[at + 1] >= 0;
    STD_TORCH_CHECK(begins && static_cast<size_t>(layouts[at + 1]) <= (layouts.size() - at - 2) / 2,
                    "fastseed.perturb: layouts must be one for each tensor");
    const auto sizes = layouts.begin() + static_cast<int64_t>(at) + 2;
    const auto strides = sizes + layouts[at + 1], end = strides + layouts[at + 1];
    const Layout found =
        layout_of(tensor.numel(), 1, {sizes, strides}, {strides, end}, layouts[at], kOp);
    check_words(Normal<double>{}, found, kOp);
    at = static_cast<size_t>(end - layouts.begin());
    return found;
  }
};

#define FS_REGISTER_PERTURB(m, Device) m.impl("perturb", TORCH_BOX(&PerturbOps<Device>::perturb))

}  // namespace fastseed
