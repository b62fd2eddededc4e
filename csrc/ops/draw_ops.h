// The operators that draw, for any device: a Device gives the launch.
#pragma once
#include "draw_args.h"

namespace fastseed {

struct Part {  // of a logical tensor
  std::vector<int64_t> sizes, strides;
  int64_t offset;
};

// A Draw has the operator's name and `run(out, launch, parameters...)`, which calls `launch` with
// the distribution for the dtype of `out`. Device::drawing(out, keys, positions, part, op) checks
// what all draws have in common and returns the launch.
template <class Device, class Draw, class... Parameters>
void draw(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
          std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
          Parameters... parameters) {
  Draw::run(out, Device::drawing(out, keys, positions, {sizes, strides, offset}, Draw::kName),
            parameters...);
}

struct DrawBits {
  static constexpr const char* kName = "draw_bits";
  template <class Launch>
  static void run(const Tensor& out, const Launch& launch) {
    for_bits(out, launch);
  }
};

struct DrawBernoulli {
  static constexpr const char* kName = "draw_bernoulli";
  template <class Launch>
  static void run(const Tensor& out, const Launch& launch, int64_t threshold) {
    for_bernoulli(out, threshold, launch);
  }
};

struct DrawRandInt {
  static constexpr const char* kName = "draw_randint";
  template <class Launch>
  static void run(const Tensor& out, const Launch& launch, int64_t low, int64_t range) {
    for_randint(out, low, range, launch);
  }
};

inline constexpr char kDrawUniform[] = "draw_uniform";
inline constexpr char kDrawNormal[] = "draw_normal";
inline constexpr char kDrawExponential[] = "draw_exponential";
inline constexpr char kDrawTruncNormal[] = "draw_trunc_normal";

template <template <class> class Distribution, const char* kOp>
struct DrawReal {
  static constexpr const char* kName = kOp;
  template <class Launch, class... Parameters>
  static void run(const Tensor& out, const Launch& launch, Parameters... parameters) {
    for_real<Distribution>(out, kOp, launch, parameters...);
  }
};

#define FS_DRAW_OP(...) TORCH_BOX((&draw<__VA_ARGS__>))

#define FS_REGISTER_DRAWS(m, Device)                                                               \
  m.impl("draw_bits", FS_DRAW_OP(Device, DrawBits));                                               \
  m.impl("draw_uniform",                                                                           \
         FS_DRAW_OP(Device, DrawReal<Uniform, kDrawUniform>, double, double, double));             \
  m.impl("draw_normal", FS_DRAW_OP(Device, DrawReal<Normal, kDrawNormal>, double, double));        \
  m.impl("draw_exponential", FS_DRAW_OP(Device, DrawReal<Exponential, kDrawExponential>, double)); \
  m.impl("draw_trunc_normal", FS_DRAW_OP(Device, DrawReal<TruncNormal, kDrawTruncNormal>, double,  \
                                         double, double, double, double, double, double, double)); \
  m.impl("draw_bernoulli", FS_DRAW_OP(Device, DrawBernoulli, int64_t));                            \
  m.impl("draw_randint", FS_DRAW_OP(Device, DrawRandInt, int64_t, int64_t))

}  // namespace fastseed
