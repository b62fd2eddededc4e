// The loops of one instruction set, made of its vector types Lanes64 and Lanes32, and their table.
#pragma once
#include "derive_lanes.h"
#include "digest_lanes.h"
#include "dispatch.h"
#include "draw_loops.h"
#include "dropout_loops.h"
#include "exact_loops.h"
#include "perturb_loops.h"
#include "sampling_loops.h"
#include "shuffle_lanes.h"

namespace fastseed {
namespace {

FS_TARGET void derive_seeds(const BlockRange& range, int64_t n, uint64_t* out, Stores stores) {
  lanes_range<Lanes64, false>(range, n, out, stores);
}

FS_TARGET void derive_keys(const BlockRange& range, int64_t n, uint64_t* out, Stores stores) {
  lanes_range<Lanes64, true>(range, n, out, stores);
}

FS_TARGET void keys_of_seeds(const uint64_t* seeds, const int64_t* indices, const Name& name,
                             int64_t n, uint64_t* out) {
  lanes_of_seeds<Lanes64>(seeds, indices, name, n, out);
}

FS_TARGET void mt19937_init(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next) {
  lanes_init<Lanes32>(seeds, states, next);
}

FS_TARGET void shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out) {
  shuffle_range<Lanes64>(shuffle, at, out);
}

FS_TARGET void shuffle_positions(const Shuffle& shuffle, int64_t count, int64_t* numbers) {
  shuffle_array_back<Lanes64>(shuffle, count, numbers);
}

FS_TARGET void digest(uint64_t key, uint64_t group_number, const uint8_t* bytes, int64_t groups,
                      uint64_t* total) {
  digest_range<Lanes64>(key, group_number, bytes, groups, total);
}

}  // namespace

static_assert(Lanes32::kLanes <= kMaxInitWidth, "callers have arrays of that size");

const CpuPath FS_PATH = {
    kName,         supported,      Lanes32::kLanes, derive_seeds,      derive_keys,
    keys_of_seeds, mt19937_init,   shuffle,         shuffle_positions, digest,
    kDrawLoops,    kSamplingLoops, kDropoutLoops,   kExactLoops,       kPerturbLoops};

}  // namespace fastseed
