// Stands in for CUDA's header of that name where a host compiles csrc/cuda/*.cu as C++: memory
// is the host's, and a launch runs all threads of a grid one after another. Then sanitizers see
// every access. Only what the kernels and their test use is here.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
// What a block of threads has in common. Blocks run one after another, and the threads of a block
// in order: what the first one writes before a barrier is there for the others.
#define __shared__ static
inline void __syncthreads() {}

struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x, y = 1, z = 1;
  dim3(unsigned n = 1) : x(n) {}
};

inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

inline dim3 blockIdx, gridDim, threadIdx;

// Stores and loads that need the alignment of their type: UBSan says where it is not there.
template <class T>
inline void __stcs(T* at, T value) {
  *at = value;
}
template <class T>
inline void __stwb(T* at, T value) {
  *at = value;
}
template <class T>
inline T __ldca(const T* at) {
  return *at;
}
template <class T>
inline T __ldg(const T* at) {
  return *at;
}
template <class T>
inline T __ldcs(const T* at) {
  return *at;
}
template <class T>
inline T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}

// ---------------------------------------------------------------- the runtime

constexpr int CUDART_VERSION = 13000;

enum cudaError_t { cudaSuccess = 0, cudaErrorLaunchFailure = 719 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDefault };
using cudaStream_t = void*;

// What a test sets: the size of the device, and whether it is lost.
inline int shim_multiprocessors = 1;
inline bool shim_fails = false;
inline int shim_launches = 0;

inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "unspecified launch failure";
}
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = shim_multiprocessors;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}

template <class Body>
cudaError_t cudaLaunchKernel(void (*kernel)(Body), dim3 grid, dim3 block, void** arguments, size_t,
                             cudaStream_t) {
  ++shim_launches;
  if (shim_fails) {
    return cudaErrorLaunchFailure;
  }
  gridDim = grid;
  for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) {
      kernel(*static_cast<Body*>(arguments[0]));
    }
  }
  return cudaSuccess;
}
