// The draws' loops for AVX2.
#if defined(__x86_64__)
#define FS_PATH Avx2
#define FS_TARGET __attribute__((target("avx2")))
#include "draws_loops.h"
#endif
