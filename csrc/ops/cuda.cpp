// The operators on CUDA devices: arguments checked, then one launch on the current stream. None but
// `digest`, which copies a table to the device, waits for the device: a graph may capture the
// others. Schemas are in fastseed/_backend/ops.
#if !defined(USE_CUDA)
#define USE_CUDA  // torch's header then declares aoti_torch_get_current_cuda_stream
#endif
#include <torch/csrc/stable/accelerator.h>

#include "../core/device.h"
#include "operators.h"

namespace fastseed {
namespace {

// Under an older driver no launch would work: torch must have no operator of these then.
bool is_driver_too_old() {
  const int driver = cuda_driver_version();
  return driver != 0 && driver < cuda_runtime_version();
}

// While it lives, the device of a tensor is the current one of torch; that of the runtime which the
// kernels are linked with is set each time, and nobody else reads it.
class OnDevice {
 public:
  explicit OnDevice(const Tensor& tensor) : guard_(tensor.get_device_index()) {
    use_cuda_device(tensor.get_device_index(), "cuda");
    const AOTITorchError error =
        aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream_);
    STD_TORCH_CHECK(error == AOTI_TORCH_SUCCESS, "fastseed: torch names no current CUDA stream");
  }

  void* stream() const {
    return stream_;
  }

 private:
  torch::stable::accelerator::DeviceGuard guard_;
  void* stream_ = nullptr;
};

struct Cuda {
  static constexpr bool kIsCuda = true;

  template <class F>
  static void run(const Tensor& written, int64_t, int64_t, const F& f) {
    const OnDevice device(written);
    f(CudaStream{device.stream()});
  }

  static Tensor copy(const Tensor& tensor, const Tensor& like) {
    const OnDevice device(like);
    Tensor there = torch::stable::new_empty(like, {tensor.size(0), tensor.size(1)}, Dtype::Long);
    return torch::stable::copy_(there, tensor);
  }
};

}  // namespace
}  // namespace fastseed

// For fastseed/_backend/native.py, which says why nothing is registered.
extern "C" __attribute__((visibility("default"))) int fastseed_cuda_driver() {
  return fastseed::cuda_driver_version();
}
extern "C" __attribute__((visibility("default"))) int fastseed_cuda_runtime() {
  return fastseed::cuda_runtime_version();
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CUDA, m) {
  using namespace fastseed;
  if (is_driver_too_old()) {
    return;
  }
  register_operators<Cuda>(m);
}
