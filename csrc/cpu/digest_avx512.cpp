// The digest loop for AVX-512F: eight groups side by side.
#if defined(__x86_64__)
#include "lanes_avx512.h"
// after FS_LANES
#include "digest_lanes.h"

namespace fastseed {
namespace {

struct Lanes512 : Avx512Words {
  static constexpr int kSideBySide = 4;  // measured: 2 and 3 are a tenth slower

  static FS_LANES Type both(Type a, Type b) {
    return _mm512_and_si512(a, b);
  }
  // All bits of the lanes of the first n groups.
  static FS_LANES Type below(uint32_t n) {
    return _mm512_maskz_set1_epi64(_mm512_cmplt_epi64_mask(order(), set(n)), -1);
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

FS_TARGET void digest_groups_avx512(uint64_t key, uint64_t place, const uint8_t* bytes,
                                    int64_t groups, uint64_t* total) {
  digest_range<Lanes512>(key, place, bytes, groups, total);
}

}  // namespace fastseed
#endif
