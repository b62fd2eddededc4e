// The table of operators that the module `_generators` calls on ordinary tensors without torch's
// dispatcher, which takes longer than a small draw.
#pragma once
#include <utility>
#include <vector>

#include "draws.h"
#include "interface.h"
#include "keys.h"

namespace fastseed {

template <class Number>
Number read(const DirectNumber& given) {
  if constexpr (std::is_same_v<Number, double>) {
    return given.real;
  } else {
    return static_cast<Number>(given.word);
  }
}

template <class Device>
struct DirectOperators {
  std::vector<DirectOperator>& rows;

  // One that is kFunction(output, numbers...).
  template <auto kFunction, class... Numbers>
  void add_function(const char* name) {
    rows.push_back({name, sizeof...(Numbers), [](void* out, const DirectNumber* given) {
                      call<kFunction, Numbers...>(Tensor(static_cast<AtenTensorHandle>(out)), given,
                                                  std::index_sequence_for<Numbers...>());
                    }});
  }

  template <class Draw, class... Parameters>
  void add() {
    add_function<&draw_whole<Draw, Parameters...>, uint64_t, uint64_t, Parameters...>(Draw::kName);
  }

 private:
  template <auto kFunction, class... Numbers, size_t... kAt>
  static void call(const Tensor& out, const DirectNumber* given, std::index_sequence<kAt...>) {
    kFunction(out, read<Numbers>(given[kAt])...);
  }

  // All of a tensor, from one key.
  template <class Draw, class... Parameters>
  static void draw_whole(const Tensor& out, uint64_t lo, uint64_t hi, Parameters... parameters) {
    Arguments given(Draw::kName, out);
    given.write_any(out, "out");
    const uint64_t key[] = {lo, hi};
    const Layout layout = layout_of(out.numel(), 1, {}, {}, 0, Draw::kName);
    draw_rows<Device, Draw>(given, out, Streams{key, nullptr, 1}, layout, parameters...);
  }
};

template <class Device>
std::vector<DirectOperator> direct_operators() {
  std::vector<DirectOperator> rows;
  DirectOperators<Device> to{rows};
  using Word = int64_t;
  to.template add_function<&derive_keys<Device>, Word, Word, Word, Word, Word>("derive_keys");
  to.template add_function<&derive_seeds<Device>, Word, Word, Word, Word, Word>("derive_seeds");
  add_draws(to);
  return rows;
}

}  // namespace fastseed
