// AVX2: four blocks, positions or groups side by side, or eight MT19937 states.
#if defined(__x86_64__)
#include <immintrin.h>

#define FS_PATH kAvx2Path
#define FS_TARGET __attribute__((target("avx2,fma")))
#define FS_VECTOR __m256i
#define FS_MULTIPLY_ADD(x, y, z) _mm256_fmadd_pd(x, y, z)
#define FS_LOAD_FLOATS(at) _mm256_cvtps_pd(_mm_loadu_ps(at))
#include "lanes.h"

namespace fastseed {
namespace {

constexpr const char* kName = "avx2";

bool supported() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

struct Lanes64 : CommonLanes64 {
  // Vectors that take each step together, by measurement.
  static constexpr int kDeriveGroups = 6;    // 4 to 8 are alike, 2 is a third slower
  static constexpr int kShuffleGroups = 10;  // 3 half as fast, 12 a third
  static constexpr int kDigestGroups = 2;    // sixteen registers hold no more

  // Of the low halves.
  static FS_LANES Type mul(Type a, Type b) {
    return _mm256_mul_epu32(a, b);
  }
  static FS_LANES Type xor3(Type a, Type b, Type c) {
    return a ^ (b ^ c);
  }
  // Of a < 2^32, and of b that is below 2^32 too, or has wrapped around from 0.
  static FS_LANES Type min(Type a, Type b) {
    return _mm256_min_epu32(a, b);
  }
  // The low half of `low` below the low half of `high`.
  static FS_LANES Type join(Type low, Type high) {
    return _mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xaa);
  }
  static FS_LANES Type zip_low(Type a, Type b) {
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b),
                                     0x20);
  }
  static FS_LANES Type zip_high(Type a, Type b) {
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b),
                                     0x31);
  }
  static FS_LANES void stream(uint64_t* out, Type v) {
    _mm256_stream_si256(reinterpret_cast<Type*>(out), v);
  }
  static FS_LANES bool any_from(Type a, int64_t n) {
    const Type below = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), a);
    return _mm256_movemask_pd(_mm256_castsi256_pd(below)) != 15;
  }
  // x / b of x < 2^52 and b <= 2^24, if that is below 2^24 + 1: the quotient of doubles is less
  // than 1 / b away from the exact one, and so not at the next integer.
  static FS_LANES Type quotient(Type x, uint32_t b) {
    const Type magic = _mm256_set1_epi64x(0x4330000000000000);  // 2^52 as a double
    const __m256d exact =
        _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(x, magic)), _mm256_castsi256_pd(magic));
    return _mm256_cvtepu32_epi64(_mm256_cvttpd_epi32(_mm256_div_pd(exact, _mm256_set1_pd(b))));
  }
  // Low and high halves of four groups, in the order in which unpacking leaves them.
  static FS_LANES void load_groups(const uint8_t* bytes, Type* lows, Type* highs) {
    const Type a = load(bytes), b = load(bytes + 32);
    *lows = _mm256_unpacklo_epi64(a, b);
    *highs = _mm256_unpackhi_epi64(a, b);
  }
  static FS_LANES Type order() {
    return _mm256_setr_epi64x(0, 2, 1, 3);
  }
  // All bits of the lanes of the first n groups.
  static FS_LANES Type below(uint32_t n) {
    return _mm256_cmpgt_epi64(set(n), order());
  }
};

struct Lanes32 : CommonLanes32 {
  // Three stages, each a turn of squares of twice the side.
  static FS_LANES void transpose(Type (&r)[8]) {
    Type t[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
      t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; ++i) {
      r[i] = t[i];
    }
  }
};

}  // namespace
}  // namespace fastseed

#include "path.h"
#endif
