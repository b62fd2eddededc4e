// The CUDA runtime that the kernels are linked with, which need not be torch's.
#pragma once

namespace fastseed {

// Versions as CUDA gives them: 1000 major + 10 minor. That of the driver is 0 where there is none.
int cuda_driver_version();
int cuda_runtime_version();

// Launches of this thread go to the device from here on: the runtime has a current device of its
// own.
void use_cuda_device(int index, const char* op);

}  // namespace fastseed
