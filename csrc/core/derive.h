// From coordinates to keys: derivation version 1 (docs/derivation.md). Pure functions of integers.
// Arguments are trusted: ranges are checked once, at the boundary.
#pragma once
#include <cstdint>

#include "philox.h"

namespace fastseed {

constexpr int kDerivationVersion = 1;

// No two uses of Philox share a domain, so that no two of them share a counter.
enum class Domain : uint32_t { kScope = 1, kStream = 2, kSample = 3, kState = 4, kShuffle = 5 };

constexpr uint32_t kSharedRank = (1u << 24) - 1;

// Where the job is in time.
struct Scope {
  uint64_t key;
  uint64_t tweak;
};

// Which generator it is, and the rank it lives on; `index` then numbers the members.
struct Stream {
  Scope scope;
  uint32_t name_id;
  uint32_t place;  // rank | domain << 24
};

struct Key {
  uint64_t lo;
  uint64_t hi;
};

FS_HD uint32_t with_domain(uint32_t value, Domain domain) {
  return value | static_cast<uint32_t>(domain) << 24;
}

FS_HD Scope scope_key(uint64_t master, uint32_t task, uint32_t epoch, uint64_t step) {
  const Block r =
      philox4x32(master, Block{{static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
                                epoch, with_domain(task, Domain::kScope)}});
  return Scope{r.lo(), r.hi()};
}

FS_HD uint64_t member_index(uint32_t worker, uint64_t i) {
  return static_cast<uint64_t>(worker) << 40 | i;
}

FS_HD Key stream_key(const Stream& stream, uint64_t index) {
  const uint64_t x = index ^ stream.scope.tweak;
  const Block r =
      philox4x32(stream.scope.key, Block{{static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32),
                                          stream.name_id, stream.place}});
  return Key{r.lo(), r.hi()};
}

// The key that a job with this master seed has for a stream shared by all ranks, at task 0,
// epoch 0, step 0.
FS_HD Key key_of_seed(uint64_t seed, uint32_t name_id, uint64_t index) {
  return stream_key(
      Stream{scope_key(seed, 0, 0, 0), name_id, with_domain(kSharedRank, Domain::kStream)}, index);
}

}  // namespace fastseed
