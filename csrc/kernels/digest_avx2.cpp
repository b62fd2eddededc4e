// The digest loop for AVX2: four groups side by side.
#if defined(__x86_64__)
#include <immintrin.h>

#define FS_LANES __attribute__((target("avx2"), always_inline)) inline
#include "digest_lanes.h"

namespace fastseed {
namespace {

struct Lanes256 {
  using Type = __m256i;
  static constexpr int kLanes = 4;
  static constexpr int kSideBySide = 2;  // sixteen registers hold no more

  static FS_LANES Type set(uint32_t v) {
    return _mm256_set1_epi64x(v);
  }
  static FS_LANES Type add(Type a, Type b) {
    return _mm256_add_epi64(a, b);
  }
  static FS_LANES Type mul(Type a, Type b) {
    return _mm256_mul_epu32(a, b);
  }
  static FS_LANES Type upper(Type a) {
    return _mm256_srli_epi64(a, 32);
  }
  static FS_LANES Type both(Type a, Type b) {
    return _mm256_and_si256(a, b);
  }
  // All bits of the lanes of the first n groups.
  static FS_LANES Type below(uint32_t n) {
    return _mm256_cmpgt_epi64(set(n), order());
  }
  static FS_LANES Type exor3(Type a, Type b, Type c) {
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
  }
  // Low and high halves of four groups, in the order in which unpacking leaves them.
  static FS_LANES void load(const uint8_t* bytes, Type* lows, Type* highs) {
    const Type a = _mm256_loadu_si256(reinterpret_cast<const Type*>(bytes));
    const Type b = _mm256_loadu_si256(reinterpret_cast<const Type*>(bytes + 32));
    *lows = _mm256_unpacklo_epi64(a, b);
    *highs = _mm256_unpackhi_epi64(a, b);
  }
  static FS_LANES Type order() {
    return _mm256_setr_epi64x(0, 2, 1, 3);
  }
  static FS_LANES uint64_t total(Type a) {
    uint64_t lanes[kLanes];
    _mm256_storeu_si256(reinterpret_cast<Type*>(lanes), a);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
};

}  // namespace

__attribute__((target("avx2"))) void digest_groups_avx2(uint64_t key, uint64_t place,
                                                        const uint8_t* bytes, int64_t groups,
                                                        uint64_t* total) {
  digest_range<Lanes256>(key, place, bytes, groups, total);
}

}  // namespace fastseed
#endif
