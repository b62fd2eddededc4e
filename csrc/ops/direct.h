// Operators on an ordinary tensor of the CPU that the module `_generators` calls without torch's
// dispatcher, which takes longer than a small draw. A row of the table for each.
#pragma once
#include <utility>

#include "draw_ops.h"
#include "interface.h"
#include "key_ops.h"
#include "parallel.h"

namespace fastseed {

// Values that a second thread is worth waking for.
constexpr int64_t kDrawGrain = 1 << 14;

// A whole tensor, from one key.
template <class Draw, class... Parameters>
void draw_whole(const Tensor& out, uint64_t lo, uint64_t hi, Parameters... parameters) {
  const uint64_t key[] = {lo, hi};
  const Layout layout = layout_of(out.numel(), 1, {}, {}, 0, Draw::kName);
  const auto launch = [&](const auto& distribution, auto* data) {
    check_words(distribution, layout, Draw::kName);
    parallel(out.numel(), kDrawGrain, [&](int64_t begin, int64_t end) {
      launch_draw(distribution, Streams{key, nullptr, 1}, layout, begin, end, data);
    });
  };
  Draw::run(out, launch, parameters...);
}

template <class Parameter>
Parameter read(const Number& number) {
  if constexpr (std::is_same_v<Parameter, double>) {
    return number.real;
  } else {
    return static_cast<Parameter>(number.word);
  }
}

// A row for a function of the output and numbers.
template <auto kFunction>
struct Direct;

template <class... Numbers, void (*kFunction)(const Tensor&, Numbers...)>
struct Direct<kFunction> {
  template <size_t... kAt>
  static void call(const Tensor& out, const Number* numbers, std::index_sequence<kAt...>) {
    kFunction(out, read<Numbers>(numbers[kAt])...);
  }
  static constexpr DirectOperator row(const char* name) {
    return {name, sizeof...(Numbers), [](void* tensor, const Number* numbers) {
              call(Tensor(static_cast<AtenTensorHandle>(tensor)), numbers,
                   std::index_sequence_for<Numbers...>());
            }};
  }
};

template <class Draw, class... Parameters>
constexpr DirectOperator direct_draw() {
  return Direct<&draw_whole<Draw, Parameters...>>::row(Draw::kName);
}

}  // namespace fastseed
