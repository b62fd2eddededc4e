// The kernels in plain C++: every CPU, and the yardstick of the others.
#include "../core/derive.h"
#include "../core/mt19937.h"
#include "dispatch.h"

namespace fastseed {
namespace {

Key block_at(const BlockRange& range, int64_t i) {
  const Stream stream{{range.key, range.tweak}, range.w2, range.w3};
  return stream_key(stream, range.start + static_cast<uint64_t>(i));
}

bool supported() {
  return true;
}

void low_halves(const BlockRange& range, int64_t n, uint64_t* out, Stores) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = block_at(range, i).lo;
  }
}

void blocks(const BlockRange& range, int64_t n, uint64_t* out, Stores) {
  for (int64_t i = 0; i < n; ++i) {
    const Key r = block_at(range, i);
    out[2 * i] = r.lo;
    out[2 * i + 1] = r.hi;
  }
}

void keys_of_seeds(const uint64_t* seeds, const int64_t* indices, const Name& name, int64_t n,
                   uint64_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t index = indices == nullptr ? 0 : static_cast<uint64_t>(indices[i]);
    const Key key = key_of_seed(seeds[i], name, index);
    out[2 * i] = key.lo;
    out[2 * i + 1] = key.hi;
  }
}

void init(const uint32_t* seeds, uint32_t* const* states, uint32_t* const*) {
  mt19937_init(seeds[0], states[0]);
}

}  // namespace

const CpuPath kPortablePath = {"portable", 1, supported, low_halves, blocks, keys_of_seeds, init};

}  // namespace fastseed
