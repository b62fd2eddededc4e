// The shuffle for AVX2: four positions a vector.
#if defined(__x86_64__)
#include "lanes_avx2.h"
// after FS_LANES
#include "shuffle_lanes.h"

namespace fastseed {
namespace {

struct Lanes256 : Avx2Words {
  static constexpr int kSideBySide = 10;  // measured: 3 half as fast, 12 a third

  static FS_LANES Type set64(int64_t v) {
    return _mm256_set1_epi64x(v);
  }
  static FS_LANES Type load(const int64_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const Type*>(p));
  }
  static FS_LANES void store(int64_t* p, Type v) {
    _mm256_storeu_si256(reinterpret_cast<Type*>(p), v);
  }
  static FS_LANES Type subtract(Type a, Type b) {
    return _mm256_sub_epi64(a, b);
  }
  // Of a < 2^32, and of b that is below 2^32 too, or has wrapped around from 0.
  static FS_LANES Type min(Type a, Type b) {
    return _mm256_min_epu32(a, b);
  }
  static FS_LANES bool any_from(Type a, int64_t n) {
    const Type below = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), a);
    return _mm256_movemask_pd(_mm256_castsi256_pd(below)) != 15;
  }
  // As in shuffle_avx512.cpp.
  static FS_LANES Type quotient(Type x, uint32_t b) {
    const Type magic = _mm256_set1_epi64x(0x4330000000000000);
    const __m256d exact =
        _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(x, magic)), _mm256_castsi256_pd(magic));
    return _mm256_cvtepu32_epi64(_mm256_cvttpd_epi32(_mm256_div_pd(exact, _mm256_set1_pd(b))));
  }
};

}  // namespace

FS_TARGET void shuffle_avx2(const Shuffle& shuffle, const Positions& at, int64_t* out) {
  shuffle_range<Lanes256>(shuffle, at, out);
}

}  // namespace fastseed
#endif
