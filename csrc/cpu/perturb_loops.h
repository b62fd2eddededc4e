// The loops of PerturbLoops, for compilers to make vector code of.
//
// The including file defines FS_DRAW_TARGET, the attribute of its instruction set.
#pragma once
#include "dispatch.h"

namespace fastseed {
namespace {

template <class T>
struct PerturbLoop {
  using Real = typename Compute<T>::Type;

  FS_DRAW_TARGET static void signs(const uint32_t* __restrict words, int64_t count,
                                   Real* __restrict z) {
    for (int64_t w = 0; w < count; ++w) {
      for (int bit = 0; bit < 32; ++bit) {
        z[32 * w + bit] = sign_of<Real>(words[w], bit);
      }
    }
  }
  FS_DRAW_TARGET static void widen(const T* __restrict p, int64_t n, Real* __restrict x) {
    for (int64_t i = 0; i < n; ++i) {
      x[i] = to_real(p[i]);
    }
  }
  FS_DRAW_TARGET static void narrow(const Real* __restrict x, int64_t n, T* __restrict p) {
    for (int64_t i = 0; i < n; ++i) {
      const T rounded = Rounded<T>::of(x[i]);
      p[i] = x[i] == x[i] ? rounded : p[i];
    }
  }
  FS_DRAW_TARGET static void add(const Real* __restrict z, Real scale, int64_t n, T* __restrict p) {
    for (int64_t i = 0; i < n; ++i) {
      p[i] = moved(p[i], mul(scale, z[i]));
    }
  }
  FS_DRAW_TARGET static bool record(const Real* __restrict z, Real scale, int64_t n,
                                    const T* __restrict p, T* __restrict out,
                                    int8_t* __restrict bytes) {
    uint8_t listed = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Real d = mul(scale, z[i]);
      out[i] = moved(p[i], d);
      bytes[i] = byte_of(p[i], out[i], d);
      listed |= bytes[i] == kListed;
    }
    return listed != 0;
  }
  FS_DRAW_TARGET static void undo(const Real* __restrict z, Real scale, int64_t n,
                                  const int8_t* __restrict bytes, T* __restrict p) {
    for (int64_t i = 0; i < n; ++i) {
      p[i] = moved_back(p[i], mul(scale, z[i]), bytes[i]);
    }
  }
  static constexpr PerturbLoopsOf<T> kAll{signs, widen, narrow, add, record, undo};
};

constexpr PerturbLoops kPerturbLoops{PerturbLoop<float>::kAll, PerturbLoop<double>::kAll,
                                     PerturbLoop<Half>::kAll, PerturbLoop<BFloat16>::kAll};

}  // namespace
}  // namespace fastseed
