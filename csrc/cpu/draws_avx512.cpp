// The draws' loops for AVX-512, with the instructions that came with it in servers.
#if defined(__x86_64__)
#define FS_PATH Avx512
#if defined(__clang__)  // refuses the preference, and the whole list with it
#define FS_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), min_vector_width(512)))
#else
#define FS_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#include "draws_loops.h"
#endif
