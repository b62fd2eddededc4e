// The products of Philox and nothing else: independent chains of 32 x 32 -> 64 bit multiplies, enough
// of them to keep the CPU's multipliers busy. Compiled by multiplies.py, with -O3 -march=native.
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int kChains = 12;  // latency times throughput is at most 10 on the CPUs that are known
constexpr uint32_t kFactor = 0xD2511F53;

#if defined(__AVX2__)
__m256i product(__m256i x) { return _mm256_mul_epu32(x, _mm256_set1_epi64x(kFactor)); }
#endif
#if defined(__AVX512F__)
__m512i product(__m512i x) { return _mm512_mul_epu32(x, _mm512_set1_epi64(kFactor)); }
#endif

// Each of `kChains` vectors starts from 1, 2, 3 ... and is replaced by its product in each round.
template <class Vector>
uint64_t run(int64_t products) {
  constexpr int kLanes = sizeof(Vector) / 8;
  uint64_t lanes[kChains * kLanes];
  Vector chain[kChains];
  for (int i = 0; i < kChains * kLanes; ++i) lanes[i] = i + 1;
  std::memcpy(chain, lanes, sizeof lanes);
  for (int64_t done = 0; done < products; done += kChains * kLanes)
    for (Vector& x : chain) x = product(x);
  std::memcpy(lanes, chain, sizeof lanes);
  uint64_t sum = 0;
  for (uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace

// Compute at least `products` products, `lanes` at a time; 0 where this CPU has no such vectors.
extern "C" uint64_t multiply(int lanes, int64_t products) {
#if defined(__AVX512F__)
  if (lanes == 8) return run<__m512i>(products);
#endif
#if defined(__AVX2__)
  if (lanes == 4) return run<__m256i>(products);
#endif
  return 0 * products * lanes;
}
