// What the kernels need of a CUDA device, and the one place that launches: the only header that
// includes CUDA's own.
//
// A kernel is a struct of its parameters, passed by value, with `kMinBlocks` (how many blocks a
// multiprocessor has to hold at least: that is its limit of registers) and an operator() that does
// what one thread of a grid of any size has to do. No thread waits for another, but in
// once_per_block for the first of its block and in SharedSums for all; so a host can run them one
// after another (tests/csrc/cuda_shim).
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "../core/device.h"
#include "../core/macros.h"

#define FS_DEVICE __device__ __forceinline__

namespace fastseed {

constexpr int kThreads = 256;
constexpr int kVectorBytes = 16;

FS_HD bool is_aligned(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

struct ThreadIndex {
  uint32_t block;
  uint32_t blocks;
  uint32_t thread;
};

template <class Body>
__global__ void __launch_bounds__(kThreads, Body::kMinBlocks)
    body_kernel(const __grid_constant__ Body body) {
  body(ThreadIndex{blockIdx.x, gridDim.x, threadIdx.x});
}

inline void check_cuda(cudaError_t error, const char* op) {
  if (error != cudaSuccess) {
    (void)cudaGetLastError();  // reported here, so the next query does not see it
    throw std::runtime_error(std::string("fastseed.") + op + ": " + cudaGetErrorString(error));
  }
}

// How many blocks of a kernel the device holds at a time.
template <class Body>
int64_t resident_blocks(const char* op) {
  int device = 0;
  int multiprocessors = 0;
  check_cuda(cudaGetDevice(&device), op);
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), op);
  return int64_t{Body::kMinBlocks} * multiprocessors;
}

template <class Body>
void launch_blocks(const Body& body, int64_t blocks, const char* op, CudaStream cuda) {
  Body parameters = body;
  void* arguments[] = {&parameters};
  check_cuda(cudaLaunchKernel(&body_kernel<Body>, dim3(static_cast<unsigned>(blocks)),
                              dim3(kThreads), arguments, 0, static_cast<cudaStream_t>(cuda.handle)),
             op);
}

// As many blocks as the device holds at a time, but not more than there is work for. A grid-stride
// loop in the kernel does the rest.
template <class Body>
void launch(const Body& body, int64_t tiles, const char* op, CudaStream cuda) {
  if (tiles > 0) {
    const int64_t most = resident_blocks<Body>(op);
    launch_blocks(body, std::min(tiles, most), op, cuda);
  }
}

// f(i) for the indices below n that fall to this thread, of those of the whole grid in turns.
template <class F>
FS_DEVICE void each_index(ThreadIndex at, int64_t n, const F& f) {
#pragma unroll 1
  for (int64_t i = int64_t{at.block} * kThreads + at.thread; i < n;
       i += int64_t{at.blocks} * kThreads) {
    f(i);
  }
}

// Share `part` of `parts` runs of n tiles, whose lengths differ by one at most: its first tile.
FS_HD int64_t first_of_share(int64_t n, uint32_t part, uint32_t parts) {
  const int64_t each = n / parts, rest = n % parts;
  return each * part + (part < rest ? part : rest);
}

// n numbers of 64 bits in tiles of two a thread, for stores of 16 bytes; those before the first
// tile and behind the last one are taken one by one. All are, where the address allows no such
// store.
struct Tiles {
  static constexpr int64_t kTile = 2 * kThreads;
  int64_t n;
  int64_t tiles;
  int64_t head;  // numbers before the first tile

  Tiles(int64_t n, bool vectors, int64_t head = 0)
      : n(n), tiles(vectors ? (n - head) / kTile : 0), head(head) {}

  // Of numbers that are written to `out`.
  Tiles(int64_t n, const void* out)
      : Tiles(n, is_aligned(out, sizeof(uint64_t)), is_aligned(out, kVectorBytes) ? 0 : 1) {}

  // For launch().
  int64_t blocks() const {
    return tiles + (n - tiles * kTile + kThreads - 1) / kThreads;
  }

  // two(i) for the first of a tile's numbers that fall to this thread, one(i) for each other
  // number.
  template <class Two, class One>
  FS_DEVICE void each(ThreadIndex at, const Two& two, const One& one) const {
#pragma unroll 1
    for (int64_t tile = at.block; tile < tiles; tile += at.blocks) {
      two(head + tile * kTile);
    }
    each_index(at, n - tiles * kTile, [&](int64_t i) { one(i < head ? i : i + tiles * kTile); });
  }
};

// Stores that are not expected to be read soon: first to leave the caches.
FS_DEVICE void store(uint64_t* at, uint64_t value) {
  __stcs(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(value));
}

FS_DEVICE void store(uint64_t* at, uint64_t first, uint64_t second) {
  __stcs(reinterpret_cast<uint4*>(at),
         make_uint4(static_cast<uint32_t>(first), static_cast<uint32_t>(first >> 32),
                    static_cast<uint32_t>(second), static_cast<uint32_t>(second >> 32)));
}

FS_DEVICE uint64_t load(const uint64_t* at) {
  return __ldg(reinterpret_cast<const unsigned long long*>(at));
}

// What `make` returns, computed by the first thread of a block for all of them. Every thread has to
// call it, once.
template <class T, class F>
FS_DEVICE T once_per_block(const F& make) {
  __shared__ T made;
  if (threadIdx.x == 0) {
    made = make();
  }
  __syncthreads();
  return made;
}

// Sums of 64 bits in the shared memory of a block, as halves: devices add 32 bits there at once,
// and 64 in a loop. A kernel uses one object once: clear, add, then `each`. A host runs the threads
// one after another, so that the first one clears and the last one reads.
template <int kCount>
struct SharedSums {
  uint32_t halves[2][kCount];

  FS_DEVICE void clear(uint32_t thread) {
    for (int i = first(thread, 0); i < kCount; i += kStep) {
      halves[0][i] = halves[1][i] = 0;
    }
    __syncthreads();
  }

  FS_DEVICE void add(int i, uint64_t value) {
    const uint32_t low = static_cast<uint32_t>(value), high = static_cast<uint32_t>(value >> 32);
    const uint32_t carry = atomicAdd(&halves[0][i], low) + low < low ? 1 : 0;
    if (high + carry != 0) {
      atomicAdd(&halves[1][i], high + carry);
    }
  }

  // Sums that are not 0 are added to `total`.
  FS_DEVICE void add_to(int64_t* total, uint32_t thread) const {
    __syncthreads();
    for (int i = first(thread, kThreads - 1); i < kCount; i += kStep) {
      const uint64_t sum = halves[0][i] | static_cast<uint64_t>(halves[1][i]) << 32;
      if (sum != 0) {
        atomicAdd(reinterpret_cast<unsigned long long*>(total + i),
                  static_cast<unsigned long long>(sum));
      }
    }
  }

 private:
#if defined(__CUDA_ARCH__)
  static constexpr int kStep = kThreads;
  FS_DEVICE static int first(uint32_t thread, int) {
    return static_cast<int>(thread);
  }
#else
  static constexpr int kStep = 1;
  static int first(uint32_t thread, int which) {
    return static_cast<int>(thread) == which ? 0 : kCount;
  }
#endif
};

// n / divisor of n < 2^31, as one product and a shift (Granlund and Montgomery, 1994).
class Divider {
 public:
  Divider() = default;
  explicit Divider(uint32_t divisor) {  // in [1, 2^31]
    while ((uint64_t{1} << shift_) < divisor) {
      ++shift_;
    }
    factor_ = static_cast<uint32_t>(((uint64_t{1} << (31 + shift_)) + divisor - 1) / divisor);
  }

  FS_HD uint32_t quotient(uint32_t n) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(n << 1) * factor_ >> 32) >> shift_;
  }

 private:
  uint32_t factor_ = 0;
  uint32_t shift_ = 0;
};

}  // namespace fastseed
