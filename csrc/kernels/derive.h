// Host entries of the derivation: pointers, counts, no torch.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../core/derive.h"
#include "../core/mt19937.h"

namespace fastseed {

// out[2 * i], out[2 * i + 1] = lo, hi of the key of index start + i (mod 2^64), 0 <= i < n.
void launch_derive_keys(const Stream& stream, uint64_t start, int64_t n, uint64_t* out);

// out[i] = lo of the key of index start + i (mod 2^64), 0 <= i < n.
void launch_derive_seeds(const Stream& stream, uint64_t start, int64_t n, uint64_t* out);

// out[2 * i], out[2 * i + 1] = lo, hi of key_of_seed(seeds[i], name, indices[i], or 0 where
// `indices` is null), 0 <= i < n.
void launch_keys_of_seeds(const uint64_t* seeds, const int64_t* indices, const Name& name,
                          int64_t n, uint64_t* out);

// state[0..623] = the expansion of `key`.
void launch_mt19937_expand(Key key, uint32_t* state);

// states[i][0..623] = mt19937_init(seeds[i]), 0 <= i < n. Works on several states side by side;
// no two of them may overlap. `next` (or null) names n states that will be written soon.
void launch_mt19937_init(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next,
                         int n);

// How many states launch_mt19937_init likes to have at once on the path in use.
int mt19937_init_width();
constexpr int kMaxInitWidth = 16;  // the largest of all paths

// The instruction sets with kernels of their own that this CPU can run, slowest first.
std::vector<std::string> simd_paths();

// The one in use: the fastest, or what FASTSEED_SIMD or set_simd_path name. Throws
// std::invalid_argument for a name that is not in simd_paths().
std::string simd_path();

// "" goes back to the fastest.
void set_simd_path(const std::string& name);

// ---------------------------------------------------------------- CUDA devices

// A Stream whose scope is in the device's memory, as key and tweak: a captured graph sees what is
// there when it is replayed.
struct StreamAt {
  const uint64_t* scope;
  Name name;
  uint32_t rank_word;
  uint32_t worker;
};

// As launch_derive_keys and launch_derive_seeds.
void launch_derive_keys_cuda(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                             void* cuda_stream);
void launch_derive_seeds_cuda(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
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
