// The operators of dropout, for any device: a Device gives the launches.
#pragma once
#include <torch/csrc/stable/ops.h>

#include "../core/dropout.h"
#include "key_ops.h"

namespace fastseed {

// Device::drop(rule, keys, layout, in, out, tensor) launches for an output of more than 0 elements,
// Device::layer_key(out, scope, count, call, tensor) for tensors that are checked.
template <class Device>
struct DropoutOps {
  static Tensor dropout(const Tensor& input, const Tensor& keys, std::vector<int64_t> sizes,
                        std::vector<int64_t> strides, int64_t offset, int64_t threshold) {
    constexpr const char* kOp = "dropout";
    STD_TORCH_CHECK(keys.scalar_type() == Dtype::UInt64 && keys.dim() == 2 && keys.size(0) > 0 &&
                        (keys.size(1) == 2 || keys.size(1) == 3),
                    "fastseed.dropout: keys must be torch.uint64 of shape (n, 2) or (n, 3)");
    STD_TORCH_CHECK(same_device(input, keys),
                    "fastseed.dropout: input must be on the device of the keys");
    STD_TORCH_CHECK(threshold >= 0 && threshold <= kDropoutLevels,
                    "fastseed.dropout: threshold must be in [0, 2**16], got ", threshold);
    check_memory(keys, kOp, "keys");
    check_memory(input, kOp, "input");
    const Layout layout = layout_of(input.numel(), keys.size(0), sizes, strides, offset, kOp);
    const Tensor out = torch::stable::empty_like(input);
    const DropoutKeys rows{words_of(keys), keys.size(1), keys.size(0)};
    const auto run = [&](auto* in) {
      using T = std::remove_pointer_t<decltype(in)>;
      if (input.numel() > 0) {
        Device::drop(Dropout<T>(threshold), rows, layout, in, static_cast<T*>(out.data_ptr()), out);
      }
    };
    for_reals(input, kOp, "input", run);
    return out;
  }

  static void layer_key(const Tensor& out, const Tensor& scope, const Tensor& count,
                        int64_t name_lo, int64_t name_hi, int64_t index, int64_t index_step,
                        int64_t row_elements, int64_t rank_field) {
    constexpr const char* kOp = "layer_key";
    check_tensor(out, kOp, "out", Dtype::UInt64, {3}, out);
    check_scope(scope, out, kOp);
    STD_TORCH_CHECK(
        count.scalar_type() == Dtype::Long && count.numel() == 1 && same_device(count, out),
        "fastseed.layer_key: count must be one torch.int64 on the device of out");
    STD_TORCH_CHECK(rank_field >= 0 && rank_field <= kSharedRank,
                    "fastseed.layer_key: rank_field must be in [0, 2**24), got ", rank_field);
    check_memory(count, kOp, "count");
    check_disjoint(out, count, kOp, "count");
    mark_written(out);
    const LayerCall call{{static_cast<uint64_t>(name_lo), static_cast<uint64_t>(name_hi)},
                         static_cast<uint64_t>(index),
                         static_cast<uint64_t>(index_step),
                         static_cast<uint64_t>(row_elements),
                         static_cast<uint32_t>(rank_field)};
    Device::layer_key(words_of(out), words_of(scope), longs_of(count), call, out);
  }
};

#define FS_REGISTER_DROPOUT(m, Device)                        \
  m.impl("dropout", TORCH_BOX(&DropoutOps<Device>::dropout)); \
  m.impl("layer_key", TORCH_BOX(&DropoutOps<Device>::layer_key))

}  // namespace fastseed
