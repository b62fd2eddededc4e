// The kernels for AVX2: four blocks, or eight MT19937 states, side by side.
#if defined(__x86_64__)
#include "lanes_avx2.h"
// after FS_LANES
#include "derive_lanes.h"

namespace fastseed {
namespace {

struct Lanes64 : Avx2Words {
  static constexpr int kGroups = 6;  // measured: 4 to 8 are alike, 2 is a third slower

  static FS_LANES Type count_from(uint64_t first) {
    return _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first)),
                            _mm256_setr_epi64x(0, 1, 2, 3));
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
  template <bool kStream>
  static FS_LANES void store(uint64_t* out, Type v) {
    if (kStream) {
      _mm256_stream_si256(reinterpret_cast<Type*>(out), v);
    } else {
      _mm256_storeu_si256(reinterpret_cast<Type*>(out), v);
    }
  }
  static FS_LANES Type load(const uint64_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const Type*>(p));
  }
  static FS_LANES int64_t words_to_aligned(const uint64_t* p) {
    return static_cast<int64_t>((-reinterpret_cast<uintptr_t>(p) & 31) / 8);
  }
  static FS_LANES void fence() {
    _mm_sfence();
  }
};

struct Lanes32 {
  using Type = __m256i;
  static constexpr int kLanes = 8;

  static FS_LANES Type set(uint32_t v) {
    return _mm256_set1_epi32(static_cast<int>(v));
  }
  static FS_LANES Type load(const uint32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const Type*>(p));
  }
  static FS_LANES Type add(Type a, Type b) {
    return _mm256_add_epi32(a, b);
  }
  static FS_LANES Type mul(Type a, Type b) {
    return _mm256_mullo_epi32(a, b);
  }
  static FS_LANES Type bit_xor(Type a, Type b) {
    return _mm256_xor_si256(a, b);
  }
  static FS_LANES Type shift30(Type a) {
    return _mm256_srli_epi32(a, 30);
  }
  static FS_LANES void store(uint32_t* out, Type v) {
    _mm256_storeu_si256(reinterpret_cast<Type*>(out), v);
  }
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

bool supported() {
  return __builtin_cpu_supports("avx2");
}

FS_TARGET void low_halves(const BlockRange& range, int64_t n, uint64_t* out, Stores stores) {
  lanes_range<Lanes64, false>(range, n, out, stores);
}

FS_TARGET void blocks(const BlockRange& range, int64_t n, uint64_t* out, Stores stores) {
  lanes_range<Lanes64, true>(range, n, out, stores);
}

FS_TARGET void keys_of_seeds(const uint64_t* seeds, const int64_t* indices, const Name& name,
                             int64_t n, uint64_t* out) {
  lanes_of_seeds<Lanes64>(seeds, indices, name, n, out);
}

FS_TARGET void init(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next) {
  lanes_init<Lanes32>(seeds, states, next);
}

}  // namespace

const CpuPath kAvx2Path = {"avx2", Lanes32::kLanes, supported, low_halves,
                           blocks, keys_of_seeds,   init};

}  // namespace fastseed
#endif
