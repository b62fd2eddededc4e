// What the loops for AVX2 share: four words, each in the low half of a 64-bit lane.
//
// In an anonymous namespace, as everything that one translation unit compiles for its own target.
#pragma once
#include <immintrin.h>

#include <cstdint>

#define FS_LANES __attribute__((target("avx2"), always_inline)) inline
#define FS_TARGET __attribute__((target("avx2")))

namespace fastseed {
namespace {

struct Avx2Words {
  using Type = __m256i;
  static constexpr int kLanes = 4;

  static FS_LANES Type set(uint32_t v) {
    return _mm256_set1_epi64x(v);
  }
  static FS_LANES Type add(Type a, Type b) {
    return _mm256_add_epi64(a, b);
  }
  // Of the low halves.
  static FS_LANES Type mul(Type a, Type b) {
    return _mm256_mul_epu32(a, b);
  }
  static FS_LANES Type shift_right_32(Type a) {
    return _mm256_srli_epi64(a, 32);
  }
  static FS_LANES Type bit_xor(Type a, Type b) {
    return _mm256_xor_si256(a, b);
  }
  static FS_LANES Type xor3(Type a, Type b, Type c) {
    return bit_xor(a, bit_xor(b, c));
  }
};

}  // namespace
}  // namespace fastseed
