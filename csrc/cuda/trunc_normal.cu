// Draws of the truncated normal distribution on CUDA devices.
#include "draw.cuh"

namespace fastseed {

FS_EACH_REAL(FS_DEFINE_DRAW_CUDA, TruncNormal)

}  // namespace fastseed
