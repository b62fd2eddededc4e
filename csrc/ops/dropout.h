// The operators of dropout.
#pragma once
#include "../core/dropout.h"
#include "huge_pages.h"
#include "keys.h"
#include "layouts.h"

namespace fastseed {

template <class Device>
Tensor dropout(const Tensor& input, const Tensor& keys, std::vector<int64_t> sizes,
               std::vector<int64_t> strides, int64_t offset, int64_t threshold) {
  constexpr const char* kOp = "dropout";
  constexpr int64_t kHugeBytes = int64_t{4} << 20;  // of an output that is worth huge pages
  constexpr int64_t kGrain = 1 << 14;  // elements that a second thread is worth waking for
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
  const DropoutKeys rows{static_cast<uint64_t*>(keys.data_ptr()), keys.size(1), keys.size(0)};
  for_reals(input, kOp, "input", [&](auto* in) {
    using T = std::remove_pointer_t<decltype(in)>;
    T* to = static_cast<T*>(out.data_ptr());
    if (!Device::kIsCuda && bytes_of(out) >= kHugeBytes) {
      ask_for_huge_pages(to, bytes_of(out));
    }
    if (input.numel() > 0) {
      Device::run(out, input.numel(), kGrain, [&](auto where) {
        launch_dropout<T>(Dropout<T>(threshold), rows, layout, in, to, where);
      });
    }
  });
  return out;
}

template <class Device>
void layer_key(const Tensor& out, const Tensor& scope, const Tensor& count, int64_t name_lo,
               int64_t name_hi, int64_t index, int64_t index_step, int64_t row_elements,
               int64_t rank_field) {
  Arguments given("layer_key", out);
  auto* data = given.write<uint64_t>(out, "out", {3});
  const auto* at = given.read<uint64_t>(scope, "scope", {2});
  STD_TORCH_CHECK(count.scalar_type() == Dtype::Long && count.numel() == 1,
                  "fastseed.layer_key: count must be one torch.int64");
  STD_TORCH_CHECK(rank_field >= 0 && rank_field <= kSharedRank,
                  "fastseed.layer_key: rank_field must be in [0, 2**24), got ", rank_field);
  given.read_any(count, "count");
  const auto* times = static_cast<int64_t*>(count.data_ptr());
  given.mark_written();
  const LayerCall call{name_of(name_lo, name_hi), static_cast<uint64_t>(index),
                       static_cast<uint64_t>(index_step), static_cast<uint64_t>(row_elements),
                       static_cast<uint32_t>(rank_field)};
  Device::run(out, 1, 1, [&](auto where) { launch_layer_key(at, times, call, data, where); });
}

template <class Device>
void register_dropout(Library& m) {
  m.impl("dropout", TORCH_BOX(&dropout<Device>));
  m.impl("layer_key", TORCH_BOX(&layer_key<Device>));
}

}  // namespace fastseed
