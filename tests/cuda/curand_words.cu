// Words of streams by cuRAND's own device functions: curand_init(lo, hi, position), then curand.
#include <curand_kernel.h>

__global__ void words_kernel(const unsigned long long* keys, const long long* positions,
                             unsigned* out, int n, int count) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= n) {
    return;
  }
  curandStatePhilox4_32_10_t state;
  curand_init(keys[2 * row], keys[2 * row + 1], static_cast<unsigned long long>(positions[row]),
              &state);
  for (int j = 0; j < count; ++j) {
    out[row * count + j] = curand(&state);
  }
}

extern "C" int curand_words(const unsigned long long* keys, const long long* positions,
                            unsigned* out, int n, int count, void* stream) {
  words_kernel<<<(n + 127) / 128, 128, 0, static_cast<cudaStream_t>(stream)>>>(keys, positions, out,
                                                                               n, count);
  return static_cast<int>(cudaGetLastError());
}
