// What the kernels of one CPU instruction set look like to the dispatcher (cpu.cpp).
#pragma once
#include <cstdint>

#include "../core/derive.h"

namespace fastseed {

// n blocks of one key whose counters differ in the first 64 bits alone:
//   block i = philox(key, (start + i) ^ tweak, w2, w3).
struct BlockRange {
  uint64_t key;
  uint64_t tweak;
  uint32_t w2;
  uint32_t w3;
  uint64_t start;
};

// Stores that pass the caches by pay off only when the output would not stay there.
enum class Stores { kCached, kStreaming };

struct CpuPath {
  const char* name;
  int init_width;  // states that `init` works on side by side
  bool (*supported)();
  void (*low_halves)(const BlockRange&, int64_t n, uint64_t* out, Stores);  // one word a block
  void (*blocks)(const BlockRange&, int64_t n, uint64_t* out, Stores);      // two words a block
  // as launch_keys_of_seeds
  void (*keys_of_seeds)(const uint64_t* seeds, const int64_t* indices, const Name&, int64_t n,
                        uint64_t* out);
  // `init_width` states; `next` as many addresses to prefetch, or null
  void (*init)(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next);
};

// The one in use.
const CpuPath& cpu_path();

extern const CpuPath kPortablePath;
#if defined(__x86_64__)
extern const CpuPath kAvx2Path;
extern const CpuPath kAvx512Path;
#endif

}  // namespace fastseed
