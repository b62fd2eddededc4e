// AVX-512: eight blocks, positions or groups side by side, or sixteen MT19937 states.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC before 13 takes the deliberately undefined operand of its own intrinsics for a mistake of
// ours (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#define FS_PATH kAvx512Path
// With what came with AVX-512F in servers.
#if defined(__clang__)  // refuses the preference, and the whole list with it
#define FS_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), min_vector_width(512)))
#else
#define FS_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#define FS_VECTOR __m512i
#define FS_MULTIPLY_ADD(x, y, z) _mm512_fmadd_pd(x, y, z)
#define FS_LOAD_FLOATS(at) _mm512_cvtps_pd(_mm256_loadu_ps(at))
#include "lanes.h"

namespace fastseed {
namespace {

constexpr const char* kName = "avx512";

bool supported() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

struct Lanes64 : CommonLanes64 {
  // Vectors that take each step together, by measurement.
  static constexpr int kDeriveGroups = 5;   // 4 to 8 are alike, 2 is a third slower
  static constexpr int kShuffleGroups = 8;  // 4 a third slower, 16 a tenth
  static constexpr int kDigestGroups = 4;   // 2 and 3 are a tenth slower

  // Of the low halves.
  static FS_LANES Type mul(Type a, Type b) {
    return _mm512_mul_epu32(a, b);
  }
  static FS_LANES Type xor3(Type a, Type b, Type c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
  }
  static FS_LANES Type min(Type a, Type b) {
    return _mm512_min_epu64(a, b);
  }
  // The low half of `low` below the low half of `high`.
  static FS_LANES Type join(Type low, Type high) {
    return _mm512_mask_shuffle_epi32(low, 0xaaaa, high, _MM_PERM_CCAA);
  }
  static FS_LANES Type zip_low(Type a, Type b) {
    return _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), b);
  }
  static FS_LANES Type zip_high(Type a, Type b) {
    return _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), b);
  }
  static FS_LANES void stream(uint64_t* out, Type v) {
    _mm512_stream_si512(reinterpret_cast<Type*>(out), v);
  }
  static FS_LANES bool any_from(Type a, int64_t n) {
    return _mm512_cmpge_epi64_mask(a, _mm512_set1_epi64(n)) != 0;
  }
  // As for AVX2.
  static FS_LANES Type quotient(Type x, uint32_t b) {
    const Type magic = _mm512_set1_epi64(0x4330000000000000);
    const __m512d exact =
        _mm512_sub_pd(_mm512_castsi512_pd(_mm512_or_si512(x, magic)), _mm512_castsi512_pd(magic));
    return _mm512_cvtepu32_epi64(_mm512_cvttpd_epi32(_mm512_div_pd(exact, _mm512_set1_pd(b))));
  }
  // Low and high halves of eight groups, in the order in which unpacking leaves them.
  static FS_LANES void load_groups(const uint8_t* bytes, Type* lows, Type* highs) {
    const Type a = load(bytes), b = load(bytes + 64);
    *lows = _mm512_unpacklo_epi64(a, b);
    *highs = _mm512_unpackhi_epi64(a, b);
  }
  static FS_LANES Type order() {
    return _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  }
  // All bits of the lanes of the first n groups.
  static FS_LANES Type below(uint32_t n) {
    return _mm512_maskz_set1_epi64(_mm512_cmplt_epi64_mask(order(), set(n)), -1);
  }
};

struct Lanes32 : CommonLanes32 {
  // Four stages, each a turn of squares of twice the side.
  static FS_LANES void transpose(Type (&r)[16]) {
    Type t[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
      t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
      r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
      r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
  }
};

}  // namespace
}  // namespace fastseed

#include "path.h"
#endif
