// Host entries of the derivation on CUDA devices: pointers of the device, counts, a stream (a
// cudaStream_t). Nothing waits for the device, nothing is allocated: a graph may capture them. They
// throw std::runtime_error where CUDA refuses the launch. Draws: launch_draw_cuda in
// ../cpu/draws.h.
#pragma once
#include <cstdint>

#include "../core/derive.h"

namespace fastseed {

// A Stream whose scope is in the device's memory, as key and tweak: a captured graph sees what is
// there when it is replayed.
struct StreamAt {
  const uint64_t* scope;
  Name name;
  uint32_t rank_word;
  uint32_t worker;
};

// As launch_derive_keys and launch_derive_seeds (../cpu/derive.h).
void launch_derive_keys_cuda(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                             void* cuda_stream);
void launch_derive_keys_cuda(const StreamAt& stream, uint64_t start, int64_t n, uint64_t* out,
                             void* cuda_stream);
void launch_derive_seeds_cuda(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                              void* cuda_stream);
void launch_derive_seeds_cuda(const StreamAt& stream, uint64_t start, int64_t n, uint64_t* out,
                              void* cuda_stream);

// The same keys; and n positions become 0.
void launch_reseed_cuda(const Stream& stream, uint64_t start, int64_t n, uint64_t* keys,
                        int64_t* positions, void* cuda_stream);
void launch_reseed_cuda(const StreamAt& stream, uint64_t start, int64_t n, uint64_t* keys,
                        int64_t* positions, void* cuda_stream);

// Key i is key_of_seed(seeds[i], name, indices[i], or 0 where `indices` is null); and n positions
// become 0.
void launch_reseed_from_cuda(const uint64_t* seeds, const int64_t* indices, const Name& name,
                             int64_t n, uint64_t* keys, int64_t* positions, void* cuda_stream);

}  // namespace fastseed
