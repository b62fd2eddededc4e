// The loops of PerturbLoops, for compilers to make vector code of.
#pragma once
#include "dispatch.h"

namespace fastseed {
namespace {

// Bit i alone: vector code of shifts by a variable needs AVX2.
struct Bit {
  uint32_t of[32];
  constexpr Bit() : of() {
    for (int i = 0; i < 32; ++i) {
      of[i] = 1u << i;
    }
  }
};
alignas(64) constexpr Bit kBits;

template <class T>
struct PerturbLoop {
  using Real = RealOf<T>;

  FS_TARGET static void add(const Real* __restrict z, Real scale, int64_t n, T* __restrict p) {
    for (int64_t i = 0; i < n; ++i) {
      p[i] = moved(p[i], mul(scale, z[i]));
    }
  }
  FS_TARGET static void add_signs(const uint32_t* __restrict words, Real scale, int64_t n,
                                  T* __restrict p) {
    for (; n >= 32; n -= 32, p += 32, ++words) {
      for (int i = 0; i < 32; ++i) {
        p[i] = moved(p[i], (*words & kBits.of[i]) == 0 ? scale : -scale);
      }
    }
    for (int i = 0; i < n; ++i) {
      p[i] = moved(p[i], mul(scale, sign_of<Real>(*words, i)));
    }
  }
  FS_TARGET static bool record(const Real* __restrict z, Real scale, int64_t n,
                               const T* __restrict p, T* __restrict out, int8_t* __restrict bytes) {
    uint8_t listed = 0;
    for (int64_t i = 0; i < n; ++i) {
      const Real d = mul(scale, z[i]);
      out[i] = moved(p[i], d);
      bytes[i] = byte_of(p[i], out[i], d);
      listed |= bytes[i] == kListed;
    }
    return listed != 0;
  }
  FS_TARGET static void undo(const Real* __restrict z, Real scale, int64_t n,
                             const int8_t* __restrict bytes, T* __restrict p) {
    for (int64_t i = 0; i < n; ++i) {
      p[i] = moved_back(p[i], mul(scale, z[i]), bytes[i]);
    }
  }
  static constexpr PerturbLoopsOf<T> kAll{add, add_signs, record, undo};
};

constexpr ForReals<PerturbLoopsOf> kPerturbLoops{PerturbLoop<float>::kAll,
                                                 PerturbLoop<double>::kAll, PerturbLoop<Half>::kAll,
                                                 PerturbLoop<BFloat16>::kAll};

}  // namespace
}  // namespace fastseed
