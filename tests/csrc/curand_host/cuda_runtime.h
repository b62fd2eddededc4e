// A stand-in for the host: vector types, and the words of CUDA that mean nothing here.
#pragma once
#include <cmath>

#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline

struct uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct double2 {
  double x, y;
};
struct double4 {
  double x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
};

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

typedef struct CUstream_st* cudaStream_t;
enum libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL };

#define __NV_SILENCE_DEPRECATION_BEGIN
#define __NV_SILENCE_DEPRECATION_END
