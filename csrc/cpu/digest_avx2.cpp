// The digest loop for AVX2: four groups side by side.
#if defined(__x86_64__)
#include "lanes_avx2.h"
// after FS_LANES
#include "digest_lanes.h"

namespace fastseed {
namespace {

struct Lanes256 : Avx2Words {
  static constexpr int kSideBySide = 2;  // sixteen registers hold no more

  static FS_LANES Type both(Type a, Type b) {
    return _mm256_and_si256(a, b);
  }
  // All bits of the lanes of the first n groups.
  static FS_LANES Type below(uint32_t n) {
    return _mm256_cmpgt_epi64(set(n), order());
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

FS_TARGET void digest_groups_avx2(uint64_t key, uint64_t place, const uint8_t* bytes,
                                  int64_t groups, uint64_t* total) {
  digest_range<Lanes256>(key, place, bytes, groups, total);
}

}  // namespace fastseed
#endif
