// The order of an epoch, by the loop of this CPU.
#include "../kernels/shuffle.h"

#include "dispatch.h"

namespace fastseed {

void launch_shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out) {
  if (shuffle.n == 1) {  // cycle walking would take very long
    for (int64_t k = 0; k < at.count; ++k) {
      out[k] = 0;
    }
    return;
  }
  cpu_path().shuffle(shuffle, at, out);
}

}  // namespace fastseed
