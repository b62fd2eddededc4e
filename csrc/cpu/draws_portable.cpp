// The draws' loops for every CPU.
#define FS_PATH Portable
#define FS_TARGET
#include "draws_loops.h"
