// The operators that draw, for any device: a Device gives the launch.
#pragma once
#include "draw_args.h"

namespace fastseed {

struct Part {  // of a logical tensor
  std::vector<int64_t> sizes, strides;
  int64_t offset;
};

// Device::drawing(out, keys, positions, part, op) checks what all draws have in common and returns
// what launches one: a callable of a distribution and the typed output.
template <class Device>
struct DrawOps {
  static void bits(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
                   std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset) {
    for_bits(out, Device::drawing(out, keys, positions, {sizes, strides, offset}, "draw_bits"));
  }

  static void uniform(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
                      std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
                      double span, double shift, double cap) {
    const auto draw =
        Device::drawing(out, keys, positions, {sizes, strides, offset}, "draw_uniform");
    for_real<Uniform>(out, "draw_uniform", draw, span, shift, cap);
  }

  static void normal(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
                     std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
                     double mean, double std) {
    const auto draw =
        Device::drawing(out, keys, positions, {sizes, strides, offset}, "draw_normal");
    for_real<Normal>(out, "draw_normal", draw, mean, std);
  }

  static void exponential(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
                          std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
                          double scale) {
    const auto draw =
        Device::drawing(out, keys, positions, {sizes, strides, offset}, "draw_exponential");
    for_real<Exponential>(out, "draw_exponential", draw, scale);
  }

  static void trunc_normal(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
                           std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
                           double mean, double std, double middle, double span, double below,
                           double above, double low, double high) {
    const auto draw =
        Device::drawing(out, keys, positions, {sizes, strides, offset}, "draw_trunc_normal");
    for_real<TruncNormal>(out, "draw_trunc_normal", draw, mean, std, middle, span, below, above,
                          low, high);
  }

  static void bernoulli(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
                        std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
                        int64_t threshold) {
    for_bernoulli(
        out, threshold,
        Device::drawing(out, keys, positions, {sizes, strides, offset}, "draw_bernoulli"));
  }

  static void randint(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
                      std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
                      int64_t low, int64_t range) {
    for_randint(out, low, range,
                Device::drawing(out, keys, positions, {sizes, strides, offset}, "draw_randint"));
  }
};

#define FS_REGISTER_DRAWS(m, Device)                                      \
  m.impl("draw_bits", TORCH_BOX(&DrawOps<Device>::bits));                 \
  m.impl("draw_uniform", TORCH_BOX(&DrawOps<Device>::uniform));           \
  m.impl("draw_normal", TORCH_BOX(&DrawOps<Device>::normal));             \
  m.impl("draw_exponential", TORCH_BOX(&DrawOps<Device>::exponential));   \
  m.impl("draw_trunc_normal", TORCH_BOX(&DrawOps<Device>::trunc_normal)); \
  m.impl("draw_bernoulli", TORCH_BOX(&DrawOps<Device>::bernoulli));       \
  m.impl("draw_randint", TORCH_BOX(&DrawOps<Device>::randint))

}  // namespace fastseed
