// The loops of DropoutLoops, for compilers to make vector code of.
#pragma once
#include "dispatch.h"

namespace fastseed {
namespace {

template <class T>
FS_TARGET void drop(const Dropout<T>& rule, const uint16_t* __restrict numbers, int64_t n,
                    const T* __restrict in, T* __restrict out) {
  const Dropout<T> copy = rule;  // `out` cannot be a part of it
  for (int64_t i = 0; i < n; ++i) {
    out[i] = copy(in[i], numbers[i]);
  }
}

constexpr ForReals<DropoutLoop> kDropoutLoops{&drop<float>, &drop<double>, &drop<Half>,
                                              &drop<BFloat16>};

}  // namespace
}  // namespace fastseed
