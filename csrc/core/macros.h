// What differs between compilers, in one place.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define FS_HD __host__ __device__ __forceinline__
#define FS_UNROLL _Pragma("unroll")
#define FS_NO_UNROLL _Pragma("unroll 1")
#else
#define FS_HD inline
#define FS_UNROLL _Pragma("GCC unroll 16")
#define FS_NO_UNROLL
#endif
