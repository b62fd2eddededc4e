// From coordinates to keys: derivation version 1 (docs/spec/derivation.md). Pure functions of
// integers. Arguments are trusted: ranges are checked once, at the boundary.
#pragma once
#include <cstdint>

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

}  // namespace fastseed
