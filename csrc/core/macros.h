// What differs between compilers, in one place.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define FS_HD __host__ __device__ __forceinline__
#else
#define FS_HD inline
#endif
