// Draws on CUDA devices that need no arithmetic on reals: words, Bernoulli, integers of a range.
#include "draw.cuh"

namespace fastseed {

FS_DEFINE_DRAW_CUDA(Bits<uint32_t>)
FS_DEFINE_DRAW_CUDA(Bits<uint64_t>)
FS_EACH_REAL(FS_DEFINE_DRAW_CUDA, Bernoulli)
FS_DEFINE_DRAW_CUDA(Bernoulli<uint8_t>)
FS_EACH_INTEGER(FS_DEFINE_DRAW_CUDA)

}  // namespace fastseed
