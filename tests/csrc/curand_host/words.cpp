// cuRAND's words and uniforms at places of streams.
// Lines of "lo hi position count", the first two in hex, give lines of 3 * count words in hex: by
// curand, by curand4, and the bits of curand_uniform.
#define QUALIFIERS static inline __attribute__((unused))
// Distributions that are not compared are left out, by their include guards.
#define CURAND_DISCRETE_H_
#define CURAND_NORMAL_H_
#define CURAND_LOGNORMAL_H_
#define CURAND_POISSON_H_
static double __cr_lgamma_table[1];
#include <curand_kernel.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

static void print(uint32_t word) {
  std::printf("%08x ", word);
}

int main() {
  unsigned long long lo, hi, position;
  int count;
  while (std::scanf("%llx %llx %llu %d", &lo, &hi, &position, &count) == 4) {
    curandStatePhilox4_32_10_t state;
    curand_init(lo, hi, position, &state);
    for (int i = 0; i < count; ++i) print(curand(&state));
    curand_init(lo, hi, position, &state);
    for (int i = 0; i < count; i += 4) {
      const uint4 four = curand4(&state);
      const uint32_t words[4] = {four.x, four.y, four.z, four.w};
      for (int k = 0; k < 4 && i + k < count; ++k) print(words[k]);
    }
    curand_init(lo, hi, position, &state);
    for (int i = 0; i < count; ++i) {
      const float u = curand_uniform(&state);
      uint32_t bits;
      std::memcpy(&bits, &u, sizeof bits);
      print(bits);
    }
    std::printf("\n");
  }
}
