// What the parts of the CUDA test share: arrays of the device with guarded surroundings.
//
// One source for two builds: nvcc makes a program for a GPU of it, a C++ compiler with
// tests/csrc/cuda_shim in place of CUDA's headers one that runs the same kernels on the host.
#pragma once
#include <cuda_runtime.h>

#include <cstring>

#include "check.h"

inline void check_runtime(cudaError_t error) {
  if (error != cudaSuccess) {
    fail(cudaGetErrorString(error));
  }
}

// Multiprocessors of the device to come; a GPU has what it has.
inline void set_multiprocessors(int count) {
#if defined(__CUDACC__)
  (void)count;
#else
  shim_multiprocessors = count;
#endif
}

// n values in the device's memory, `shift` values off an address of 256-byte alignment, between
// margins that must stay unchanged.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t n, int shift = 0)
      : n_(static_cast<size_t>(n)),
        shift_(static_cast<size_t>(shift)),
        host_(n_ + shift_ + 2 * kMargin) {
    std::memset(static_cast<void*>(host_.data()), kPoison, bytes());
    check_runtime(cudaMalloc(&memory_, bytes()));
    check_runtime(cudaMemcpy(memory_, host_.data(), bytes(), cudaMemcpyHostToDevice));
  }
  explicit DeviceArray(const std::vector<T>& values, int shift = 0)
      : DeviceArray(static_cast<int64_t>(values.size()), shift) {
    if (n_ > 0) {
      check_runtime(cudaMemcpy(data(), values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    }
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    (void)cudaFree(memory_);
  }

  T* data() const {
    return static_cast<T*>(memory_) + kMargin + shift_;
  }

  // What the device wrote; and nothing around it.
  const T* read() {
    check_runtime(cudaDeviceSynchronize());
    check_runtime(cudaMemcpy(host_.data(), memory_, bytes(), cudaMemcpyDeviceToHost));
    const size_t begin = kMargin + shift_;
    check_poison(0, begin);
    check_poison(begin + n_, host_.size());
    return host_.data() + begin;
  }

 private:
  static constexpr size_t kMargin = 256;
  static constexpr int kPoison = 0xa5;

  size_t bytes() const {
    return host_.size() * sizeof(T);
  }
  void check_poison(size_t begin, size_t end) {
    const unsigned char* raw = reinterpret_cast<const unsigned char*>(host_.data());
    for (size_t i = begin * sizeof(T); i < end * sizeof(T); ++i) {
      if (raw[i] != kPoison) {
        fail("a byte outside the output was written");
      }
    }
    ++checks_passed;
  }

  size_t n_, shift_;
  std::vector<T> host_;
  void* memory_ = nullptr;
};
