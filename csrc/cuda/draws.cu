// Every distribution on CUDA devices.
#include "draw.cuh"

namespace fastseed {

FS_EACH_DISTRIBUTION(FS_DEFINE_DRAW_CUDA)

}  // namespace fastseed
