// The operators that draw.
#pragma once
#include <optional>
#include <type_traits>

#include "../core/draw.h"
#include "layouts.h"

namespace fastseed {

// Words are counted as far as values are, so that no retry has the counter of another word.
template <class Distribution>
void check_words(const Distribution&, const Layout& layout, const char* op) {
  STD_TORCH_CHECK(layout.length == 0 || layout.start(layout.runs - 1) + layout.length <=
                                            kMostValues / Distribution::kWords,
                  "fastseed.", op, ": out must hold values of words below 2**56");
}

// A Draw has the operator's name and `choose(out, launch, parameters...)`, which calls `launch`
// with the distribution for the dtype of `out` and its data. Before it writes, it calls `begin`.
template <class Device, class Draw, class Begin, class... Parameters>
void draw_rows(const Tensor& out, const Streams& streams, const Layout& layout, const Begin& begin,
               Parameters... parameters) {
  constexpr int64_t kGrain = 1 << 14;  // values that a second thread is worth waking for
  const auto launch = [&](const auto& distribution, auto* data) {
    check_words(distribution, layout, Draw::kName);
    begin();
    Device::run(out, out.numel(), kGrain,
                [&](auto where) { launch_draw(distribution, streams, layout, data, where); });
  };
  Draw::choose(out, launch, parameters...);
}

template <class Device, class Draw, class... Parameters>
void draw(const Tensor& out, const Tensor& keys, std::optional<Tensor> positions,
          std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset,
          Parameters... parameters) {
  constexpr const char* op = Draw::kName;
  Arguments given(op, out);
  given.write_any(out, "out");
  given.read(keys, "keys", Dtype::UInt64, {kAnySize, 2});
  if (positions.has_value()) {
    given.read(*positions, "positions", Dtype::Long, {keys.size(0)});
  }
  const Streams streams{words_of(keys), positions.has_value() ? longs_of(*positions) : nullptr,
                        keys.size(0)};
  const Layout layout = layout_of(out.numel(), streams.count, sizes, strides, offset, op);
  draw_rows<Device, Draw>(out, streams, layout, [&] { given.mark_written(); }, parameters...);
}

// Of a distribution of reals, with its parameters in order.
template <template <class> class Distribution>
struct DrawReal {
  static constexpr const char* kName = Distribution<float>::kName;
  template <class Launch, class... Parameters>
  static void choose(const Tensor& out, const Launch& launch, Parameters... parameters) {
    for_reals(out, kName, "out", [&](auto* data) {
      using T = std::remove_pointer_t<decltype(data)>;
      launch(Distribution<T>{static_cast<RealOf<T>>(parameters)...}, data);
    });
  }
};

struct DrawBits {
  static constexpr const char* kName = "draw_bits";
  template <class Launch>
  static void choose(const Tensor& out, const Launch& launch) {
    if (out.scalar_type() == Dtype::UInt32) {
      return launch(Bits<uint32_t>{}, static_cast<uint32_t*>(out.data_ptr()));
    }
    STD_TORCH_CHECK(out.scalar_type() == Dtype::UInt64,
                    "fastseed.draw_bits: out must be of dtype uint32 or uint64");
    launch(Bits<uint64_t>{}, words_of(out));
  }
};

struct DrawBernoulli {
  static constexpr const char* kName = "draw_bernoulli";
  template <class Launch>
  static void choose(const Tensor& out, const Launch& launch, int64_t threshold) {
    STD_TORCH_CHECK(threshold >= 0 && threshold <= int64_t{1} << 32,
                    "fastseed.draw_bernoulli: threshold must be in [0, 2**32], got ", threshold);
    const uint64_t t = static_cast<uint64_t>(threshold);
    if (out.scalar_type() == Dtype::Bool || out.scalar_type() == Dtype::Byte) {
      return launch(Bernoulli<uint8_t>{t, 0, 1}, static_cast<uint8_t*>(out.data_ptr()));
    }
    for_reals(out, kName, "an out that is not bool or uint8", [&](auto* data) {
      using T = std::remove_pointer_t<decltype(data)>;
      launch(Bernoulli<T>{t, rounded<T>(0), rounded<T>(1)}, data);
    });
  }
};

struct DrawRandInt {
  static constexpr const char* kName = "draw_randint";

  template <class T, class Word, class Launch>
  static void typed(const Tensor& out, const Launch& launch, int64_t low, Word range) {
    const Word modulus = static_cast<Word>(Word{0} - range) % range;  // of 2^32, or 2^64
    launch(RandInt<T, Word>{low, range, modulus}, static_cast<T*>(out.data_ptr()));
  }

  template <class Launch>
  static void choose(const Tensor& out, const Launch& launch, int64_t low, int64_t signed_range) {
    const uint64_t range = static_cast<uint64_t>(signed_range);
    const uint32_t narrow = static_cast<uint32_t>(range);
    STD_TORCH_CHECK(range != 0, "fastseed.draw_randint: range must be at least 1, got 0");
    if (range >> 32 != 0) {
      STD_TORCH_CHECK(
          out.scalar_type() == Dtype::Long,
          "fastseed.draw_randint: out must be of dtype int64 for a range from 2**32 on");
      return typed<int64_t>(out, launch, low, range);
    }
    switch (out.scalar_type()) {
      case Dtype::Byte:
        return typed<uint8_t>(out, launch, low, narrow);
      case Dtype::Int:
        return typed<int32_t>(out, launch, low, narrow);
      case Dtype::Long:
        return typed<int64_t>(out, launch, low, narrow);
      default:
        STD_TORCH_CHECK(false, "fastseed.draw_randint: out must be of dtype uint8, int32 or int64");
    }
  }
};

// Adds each Draw with its parameters.
template <class To>
void add_draws(To to) {
  to.template add<DrawReal<Uniform>, double, double, double>();
  to.template add<DrawReal<Normal>, double, double>();
  to.template add<DrawReal<Exponential>, double>();
  to.template add<DrawReal<TruncNormal>, double, double, double, double, double, double, double,
                  double>();
  to.template add<DrawBits>();
  to.template add<DrawBernoulli, int64_t>();
  to.template add<DrawRandInt, int64_t, int64_t>();
}

template <class Device>
struct RegisteredDraws {
  Library& m;

  template <class Draw, class... Parameters>
  void add() {
    m.impl(Draw::kName, TORCH_BOX((&draw<Device, Draw, Parameters...>)));
  }
};

template <class Device>
void register_draws(Library& m) {
  add_draws(RegisteredDraws<Device>{m});
}

}  // namespace fastseed
