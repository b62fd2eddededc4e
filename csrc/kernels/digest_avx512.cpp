// The digest loop for AVX-512F: eight groups side by side.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC before 13 takes the deliberately undefined operand of its own intrinsics for a mistake of
// ours (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#define FS_LANES __attribute__((target("avx512f"), always_inline)) inline
#include "digest_lanes.h"

namespace fastseed {
namespace {

struct Lanes512 {
  using Type = __m512i;
  static constexpr int kLanes = 8;
  static constexpr int kSideBySide = 4;  // measured: 2 and 3 are a tenth slower

  static FS_LANES Type set(uint32_t v) {
    return _mm512_set1_epi64(v);
  }
  static FS_LANES Type add(Type a, Type b) {
    return _mm512_add_epi64(a, b);
  }
  static FS_LANES Type mul(Type a, Type b) {
    return _mm512_mul_epu32(a, b);
  }
  static FS_LANES Type upper(Type a) {
    return _mm512_srli_epi64(a, 32);
  }
  static FS_LANES Type both(Type a, Type b) {
    return _mm512_and_si512(a, b);
  }
  // All bits of the lanes of the first n groups.
  static FS_LANES Type below(uint32_t n) {
    return _mm512_maskz_set1_epi64(_mm512_cmplt_epi64_mask(order(), set(n)), -1);
  }
  static FS_LANES Type exor3(Type a, Type b, Type c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
  }
  // Low and high halves of eight groups, in the order in which unpacking leaves them.
  static FS_LANES void load(const uint8_t* bytes, Type* lows, Type* highs) {
    const Type a = _mm512_loadu_si512(bytes), b = _mm512_loadu_si512(bytes + 64);
    *lows = _mm512_unpacklo_epi64(a, b);
    *highs = _mm512_unpackhi_epi64(a, b);
  }
  static FS_LANES Type order() {
    return _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  }
  static FS_LANES uint64_t total(Type a) {
    return static_cast<uint64_t>(_mm512_reduce_add_epi64(a));
  }
};

}  // namespace

__attribute__((target("avx512f"))) void digest_groups_avx512(uint64_t key, uint64_t place,
                                                             const uint8_t* bytes, int64_t groups,
                                                             uint64_t* total) {
  digest_range<Lanes512>(key, place, bytes, groups, total);
}

}  // namespace fastseed
#endif
