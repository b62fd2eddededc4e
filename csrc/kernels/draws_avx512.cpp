// The draws' loops for AVX-512, with the instructions that came with it in servers.
#if defined(__x86_64__)
#define FS_PATH Avx512
#define FS_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#include "draws_loops.h"
#endif
