// What the loops for AVX-512F share: eight words, each in the low half of a 64-bit lane.
//
// In an anonymous namespace, as everything that one translation unit compiles for its own target.
#pragma once
#if defined(__GNUC__) && !defined(__clang__)
// GCC before 13 takes the deliberately undefined operand of its own intrinsics for a mistake of
// ours (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

#define FS_LANES __attribute__((target("avx512f"), always_inline)) inline
#define FS_TARGET __attribute__((target("avx512f")))

namespace fastseed {
namespace {

struct Avx512Words {
  using Type = __m512i;
  static constexpr int kLanes = 8;

  static FS_LANES Type set(uint32_t v) {
    return _mm512_set1_epi64(v);
  }
  static FS_LANES Type add(Type a, Type b) {
    return _mm512_add_epi64(a, b);
  }
  // Of the low halves.
  static FS_LANES Type mul(Type a, Type b) {
    return _mm512_mul_epu32(a, b);
  }
  static FS_LANES Type shift_right_32(Type a) {
    return _mm512_srli_epi64(a, 32);
  }
  static FS_LANES Type bit_xor(Type a, Type b) {
    return _mm512_xor_si512(a, b);
  }
  static FS_LANES Type xor3(Type a, Type b, Type c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
  }
};

}  // namespace
}  // namespace fastseed
