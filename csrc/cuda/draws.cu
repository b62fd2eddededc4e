// Every distribution on CUDA devices.
#include "draw.cuh"

namespace fastseed {

#define FS_INSTANTIATE(D) \
  template void launch_draw<D>(const D&, const Streams&, const Layout&, D::Value*, CudaStream);
FS_EACH_DISTRIBUTION(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
