// All operators that run on any device. A Device has
//   kIsCuda
//   run(written, n, grain, f)   calls f(where), of a Range or a CudaStream, for n items of what is
//                               written; a thread of the CPU has at least `grain` of them
//   copy(table, like)           rows of int64 of the CPU, on the device of another tensor
#pragma once
#include "digest.h"
#include "draws.h"
#include "dropout.h"
#include "exact_sum.h"
#include "keys.h"
#include "perturb.h"
#include "sampling.h"
#include "shuffle.h"

namespace fastseed {

template <class Device>
void register_operators(Library& m) {
  register_digest<Device>(m);
  register_draws<Device>(m);
  register_dropout<Device>(m);
  register_exact_sum<Device>(m);
  register_keys<Device>(m);
  register_perturb<Device>(m);
  register_sampling<Device>(m);
  register_shuffle<Device>(m);
}

}  // namespace fastseed
