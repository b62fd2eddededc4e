// From coordinates to keys: derivation version 1 (docs/spec/derivation.md). Pure functions of
// integers. Arguments are trusted: ranges are checked once, at the boundary.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "device.h"
#include "philox.h"

namespace fastseed {

// No two uses of Philox share a domain, so that no two of them share a counter.
enum class Domain : uint32_t {
  kScope = 1,
  kStream = 2,
  kSample = 3,
  kState = 4,
  kShuffle = 5,
  kNarrow = 6
};

constexpr uint32_t kSharedRank = (1u << 24) - 1;

// Level 1: where the job is in time.
struct ScopeKey {
  uint64_t key;
  uint64_t tweak;
};

// The first 128 bits of SHA-256 of a name in UTF-8, little-endian.
struct Name {
  uint64_t lo;
  uint64_t hi;
};

// Level 2: a name at a point in time.
struct NameKey {
  uint64_t key;
  uint64_t tweak;
};

// All of level 3 but the index, which numbers the members.
struct Stream {
  NameKey name;
  uint32_t rank_word;  // rank | domain << 24
  uint32_t worker;     // 0: the main process
};

struct Key {
  uint64_t lo;
  uint64_t hi;
};

FS_HD uint32_t with_domain(uint32_t value, Domain domain) {
  return value | static_cast<uint32_t>(domain) << 24;
}

// The counter whose first two words are the halves of `low`.
FS_HD Block counter_of(uint64_t low, uint32_t w2, uint32_t w3) {
  return Block{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), w2, w3}};
}

FS_HD ScopeKey scope_key(uint64_t master, uint32_t task, uint32_t epoch, uint64_t step) {
  const Block r = philox4x32(master, counter_of(step, epoch, with_domain(task, Domain::kScope)));
  return ScopeKey{r.lo(), r.hi()};
}

FS_HD NameKey name_key(const ScopeKey& scope, const Name& name) {
  const Block r =
      philox4x32(scope.key, counter_of(name.lo ^ scope.tweak, static_cast<uint32_t>(name.hi),
                                       static_cast<uint32_t>(name.hi >> 32)));
  return NameKey{r.lo(), r.hi()};
}

FS_HD Key stream_key(const Stream& stream, uint64_t index) {
  const Block r = philox4x32(
      stream.name.key, counter_of(index ^ stream.name.tweak, stream.rank_word, stream.worker));
  return Key{r.lo(), r.hi()};
}

// The key that a job with this master seed has for a stream shared by all ranks, at task 0,
// epoch 0, step 0.
FS_HD Key key_of_seed(uint64_t seed, const Name& name, uint64_t index) {
  const NameKey at = name_key(scope_key(seed, 0, 0, 0), name);
  return stream_key(Stream{at, with_domain(kSharedRank, Domain::kStream), 0}, index);
}

// A Stream whose scope is in memory, as key and tweak: on a device, a captured graph sees what is
// there when it is replayed.
struct StreamAt {
  const uint64_t* scope;
  Name name;
  uint32_t rank_word;
  uint32_t worker;
};

// out[2 * i], out[2 * i + 1] = lo, hi of the key of index start + i (mod 2^64), 0 <= i < n.
void launch_derive_keys(const Stream& stream, uint64_t start, int64_t n, uint64_t* out, Range part);
void launch_derive_keys(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                        CudaStream cuda);

// out[i] = lo of the key of index start + i (mod 2^64), 0 <= i < n.
void launch_derive_seeds(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                         Range part);
void launch_derive_seeds(const Stream& stream, uint64_t start, int64_t n, uint64_t* out,
                         CudaStream cuda);

// The same keys; and n positions become 0.
void launch_reseed(const Stream& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, Range part);
void launch_reseed(const Stream& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, CudaStream cuda);
void launch_reseed(const StreamAt& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, Range part);
void launch_reseed(const StreamAt& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, CudaStream cuda);

// Key i is key_of_seed(seeds[i], name, indices[i], or 0 where `indices` is null); and n positions
// become 0.
void launch_reseed_from(const uint64_t* seeds, const int64_t* indices, const Name& name, int64_t n,
                        uint64_t* keys, int64_t* positions, Range part);
void launch_reseed_from(const uint64_t* seeds, const int64_t* indices, const Name& name, int64_t n,
                        uint64_t* keys, int64_t* positions, CudaStream cuda);

// state[0..623] = the expansion of `key`: all 128 bits of it, four words a block. The top bit of
// word 0 (the only one of it that the recurrence reads) is set, so that the state can never be all
// zero.
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
std::string joined_simd_paths(const char* between);

// The one in use: the fastest, or what FASTSEED_SIMD or set_simd_path name. Throws
// std::invalid_argument for a name that is not in simd_paths().
std::string simd_path();

// "" goes back to the fastest.
void set_simd_path(std::string name);

}  // namespace fastseed
