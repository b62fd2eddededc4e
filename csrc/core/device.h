// Where a launch_* works, and the CUDA runtime that the kernels are linked with, which need not be
// torch's.
#pragma once
#include <cstdint>

namespace fastseed {

// On the CPU: items begin to end - 1 of all. Any split of them gives the same bits.
struct Range {
  int64_t begin, end;

  int64_t size() const {
    return end - begin;
  }
};

// All items, on a CUDA stream (a cudaStream_t); every pointer is the device's.
struct CudaStream {
  void* handle;
};

// Versions as CUDA gives them: 1000 major + 10 minor. That of the driver is 0 where there is none.
int cuda_driver_version();
int cuda_runtime_version();

// Launches of this thread go to the device from here on: the runtime has a current device of its
// own.
void use_cuda_device(int index, const char* op);

}  // namespace fastseed
