// Chooses the kernels for this CPU and cuts the work to their shape.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "../core/derive.h"
#include "../core/mt19937.h"
#include "dispatch.h"

namespace fastseed {
namespace {

const CpuPath* const kPaths[] = {
    &kPortablePath,
#if defined(__x86_64__)
    &kAvx2Path,
    &kAvx512Path,
#endif
};

// Beyond this an output is not expected to be found in a cache by its reader.
constexpr int64_t kStreamingBytes = int64_t{4} << 20;

const CpuPath* find_path(const std::string& name) {
  const CpuPath* found = nullptr;
  for (const CpuPath* path : kPaths) {
    if (path->supported() && (name.empty() || name == path->name)) {
      found = path;  // the last is the fastest
    }
  }
  if (found == nullptr) {
    throw std::invalid_argument("fastseed: FASTSEED_SIMD must be one of " +
                                joined_simd_paths(", ") + " on this CPU, got " + name);
  }
  return found;
}

std::atomic<const CpuPath*> chosen{nullptr};

BlockRange range_of(const Stream& stream, uint64_t start) {
  return BlockRange{stream.name.key, stream.name.tweak, stream.rank_word, stream.worker, start};
}

Stores stores_for(int64_t bytes) {
  return bytes >= kStreamingBytes ? Stores::kStreaming : Stores::kCached;
}

}  // namespace

const CpuPath& cpu_path() {
  const CpuPath* p = chosen.load(std::memory_order_acquire);
  if (p == nullptr) {
    const char* name = std::getenv("FASTSEED_SIMD");
    p = find_path(name == nullptr ? "" : name);
    chosen.store(p, std::memory_order_release);
  }
  return *p;
}

std::vector<std::string> simd_paths() {
  std::vector<std::string> names;
  for (const CpuPath* p : kPaths) {
    if (p->supported()) {
      names.emplace_back(p->name);
    }
  }
  return names;
}

std::string joined_simd_paths(const char* between) {
  std::string names;
  for (const std::string& name : simd_paths()) {
    names += (names.empty() ? "" : between) + name;
  }
  return names;
}

std::string simd_path() {
  return cpu_path().name;
}

void set_simd_path(std::string name) {
  chosen.store(find_path(name), std::memory_order_release);
}

int mt19937_init_width() {
  return cpu_path().init_width;
}

void launch_derive_keys(const Stream& stream, uint64_t start, int64_t, uint64_t* out, Range part) {
  cpu_path().derive_keys(range_of(stream, start + static_cast<uint64_t>(part.begin)), part.size(),
                         out + 2 * part.begin, stores_for(16 * part.size()));
}

void launch_derive_seeds(const Stream& stream, uint64_t start, int64_t, uint64_t* out, Range part) {
  cpu_path().derive_seeds(range_of(stream, start + static_cast<uint64_t>(part.begin)), part.size(),
                          out + part.begin, stores_for(8 * part.size()));
}

void launch_reseed(const Stream& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, Range part) {
  launch_derive_keys(stream, start, n, keys, part);
  std::fill(positions + part.begin, positions + part.end, 0);
}

void launch_reseed(const StreamAt& stream, uint64_t start, int64_t n, uint64_t* keys,
                   int64_t* positions, Range part) {
  const NameKey name = name_key(ScopeKey{stream.scope[0], stream.scope[1]}, stream.name);
  launch_reseed(Stream{name, stream.rank_word, stream.worker}, start, n, keys, positions, part);
}

void launch_reseed_from(const uint64_t* seeds, const int64_t* indices, const Name& name, int64_t,
                        uint64_t* keys, int64_t* positions, Range part) {
  cpu_path().keys_of_seeds(seeds + part.begin, indices == nullptr ? nullptr : indices + part.begin,
                           name, part.size(), keys + 2 * part.begin);
  std::fill(positions + part.begin, positions + part.end, 0);
}

void launch_mt19937_expand(Key key, uint32_t* state) {
  // Block j has the counter (j, domain, hi), that is index j under a tweak with a zero low word.
  const Block first = mt19937_counter(key, 0);
  const BlockRange range{key.lo, first.lo(), first.w[2], first.w[3], 0};
  cpu_path().derive_keys(range, kMtBlocks, reinterpret_cast<uint64_t*>(state), Stores::kCached);
  state[0] |= kMtTopBit;
}

void launch_mt19937_init(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next,
                         int n) {
  const CpuPath& p = cpu_path();
  const int width = p.init_width;
  int i = 0;
  for (; i + width <= n; i += width) {
    p.mt19937_init(seeds + i, states + i, next == nullptr ? nullptr : next + i);
  }
  for (; i < n; ++i) {
    mt19937_init(seeds[i], states[i]);
  }
}

}  // namespace fastseed
