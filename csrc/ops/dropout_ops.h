// The operators of dropout, for any device: a Device gives the launches.
#pragma once
#include <torch/csrc/stable/ops.h>

#include "../kernels/dropout.h"
#include "key_ops.h"

namespace fastseed {

// Device::drop(rule, keys, layout, in, out, tensor) launches for an output of more than 0 elements,
// Device::layer_key(out, scope, first_row, call, tensor) for tensors that are checked.
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

  static void layer_key(const Tensor& out, const Tensor& scope, const Tensor& first_row,
                        int64_t name_lo, int64_t name_hi, int64_t label, int64_t row_elements) {
    constexpr const char* kOp = "layer_key";
    check_tensor(out, kOp, "out", Dtype::UInt64, {3}, out);
    check_scope(scope, out, kOp);
    STD_TORCH_CHECK(first_row.scalar_type() == Dtype::Long && first_row.numel() == 1 &&
                        same_device(first_row, out),
                    "fastseed.layer_key: first_row must be one torch.int64 on the device of out");
    check_memory(first_row, kOp, "first_row");
    check_disjoint(out, first_row, kOp, "first_row");
    mark_written(out);
    const LayerCall call{{static_cast<uint64_t>(name_lo), static_cast<uint64_t>(name_hi)},
                         static_cast<uint64_t>(label),
                         static_cast<uint64_t>(row_elements)};
    Device::layer_key(words_of(out), words_of(scope), longs_of(first_row), call, out);
  }
};

#define FS_REGISTER_DROPOUT(m, Device)                        \
  m.impl("dropout", TORCH_BOX(&DropoutOps<Device>::dropout)); \
  m.impl("layer_key", TORCH_BOX(&DropoutOps<Device>::layer_key))

}  // namespace fastseed
