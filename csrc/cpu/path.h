// The loops of one instruction set and their table. The including file defines FS_PATH, its name,
// and FS_TARGET, the attribute of the functions for it, and has kName and supported(). With
// FS_VECTOR it has the vector types Lanes64 and Lanes32, of which the loops over integers are made,
// else these loops themselves.
#pragma once
#include "dispatch.h"
#include "draw_loops.h"
#include "dropout_loops.h"
#include "exact_loops.h"
#include "perturb_loops.h"
#include "sampling_loops.h"

#if defined(FS_VECTOR)
#include "derive_lanes.h"
#include "digest_lanes.h"
#include "shuffle_lanes.h"

namespace fastseed {
namespace {

static_assert(Lanes32::kLanes <= kMaxInitWidth, "callers have arrays of that size");

constexpr int kInitWidth = Lanes32::kLanes;
constexpr auto* derive_seeds = &lanes_range<Lanes64, false>;
constexpr auto* derive_keys = &lanes_range<Lanes64, true>;
constexpr auto* keys_of_seeds = &lanes_of_seeds<Lanes64>;
constexpr auto* init_states = &lanes_init<Lanes32>;
constexpr auto* shuffle = &shuffle_range<Lanes64>;
constexpr auto* shuffle_positions = &shuffle_array_back<Lanes64>;
constexpr auto* digest = &digest_range<Lanes64>;

}  // namespace
}  // namespace fastseed
#endif

namespace fastseed {

const CpuPath FS_PATH = {
    kName,         supported,      kInitWidth,    derive_seeds,      derive_keys,
    keys_of_seeds, init_states,    shuffle,       shuffle_positions, digest,
    kDrawLoops,    kSamplingLoops, kDropoutLoops, kExactLoops,       kPerturbLoops};

}  // namespace fastseed
