// The kernels for AVX-512F: eight blocks, or sixteen MT19937 states, side by side.
#if defined(__x86_64__)
#include "lanes_avx512.h"
// after FS_LANES
#include "derive_lanes.h"

namespace fastseed {
namespace {

struct Lanes64 : Avx512Words {
  static constexpr int kGroups = 6;  // measured: 4 to 8 are alike, 2 is a third slower

  static FS_LANES Type count_from(uint64_t first) {
    return _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(first)),
                            _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
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
  template <bool kStream>
  static FS_LANES void store(uint64_t* out, Type v) {
    if (kStream) {
      _mm512_stream_si512(reinterpret_cast<Type*>(out), v);
    } else {
      _mm512_storeu_si512(out, v);
    }
  }
  static FS_LANES Type load(const uint64_t* p) {
    return _mm512_loadu_si512(p);
  }
  static FS_LANES int64_t words_to_aligned(const uint64_t* p) {
    return static_cast<int64_t>((-reinterpret_cast<uintptr_t>(p) & 63) / 8);
  }
  static FS_LANES void fence() {
    _mm_sfence();
  }
};

struct Lanes32 {
  using Type = __m512i;
  static constexpr int kLanes = 16;

  static FS_LANES Type set(uint32_t v) {
    return _mm512_set1_epi32(static_cast<int>(v));
  }
  static FS_LANES Type load(const uint32_t* p) {
    return _mm512_loadu_si512(p);
  }
  static FS_LANES Type add(Type a, Type b) {
    return _mm512_add_epi32(a, b);
  }
  static FS_LANES Type mul(Type a, Type b) {
    return _mm512_mullo_epi32(a, b);
  }
  static FS_LANES Type bit_xor(Type a, Type b) {
    return _mm512_xor_si512(a, b);
  }
  static FS_LANES Type shift30(Type a) {
    return _mm512_srli_epi32(a, 30);
  }
  static FS_LANES void store(uint32_t* out, Type v) {
    _mm512_storeu_si512(out, v);
  }
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

bool supported() {
  return __builtin_cpu_supports("avx512f");
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

const CpuPath kAvx512Path = {"avx512", Lanes32::kLanes, supported, low_halves,
                             blocks,   keys_of_seeds,   init};

}  // namespace fastseed
#endif
