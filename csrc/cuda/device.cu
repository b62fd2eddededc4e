#include "../core/device.h"

#include "device.cuh"

namespace fastseed {

int cuda_driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int cuda_runtime_version() {
  return CUDART_VERSION;
}

void use_cuda_device(int index, const char* op) {
  check_cuda(cudaSetDevice(index), op);
}

}  // namespace fastseed
