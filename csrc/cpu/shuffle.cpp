// The order of an epoch, by the loop of this CPU.
#include "../core/shuffle.h"

#include <algorithm>

#include "dispatch.h"

namespace fastseed {

void launch_shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out, Range part) {
  if (shuffle.n == 1) {  // cycle walking would take very long
    std::fill(out + part.begin, out + part.end, 0);
    return;
  }
  cpu_path().shuffle(shuffle, Positions{at[part.begin], at.stride, part.size()}, out + part.begin);
}

void launch_shuffle_positions(const Shuffle& shuffle, const int64_t* numbers, int64_t, int64_t* out,
                              Range part) {
  constexpr int64_t kChunk = 1024;  // read again from the cache
  const auto limit = static_cast<uint64_t>(shuffle.n);
  for (int64_t done = part.begin; done < part.end; done += kChunk) {
    const int64_t n = std::min(part.end - done, kChunk);
    const int64_t* const from = numbers + done;
    int64_t found[kChunk];
    for (int64_t k = 0; k < n; ++k) {  // a walk from outside of the rectangle might not end
      found[k] = static_cast<uint64_t>(from[k]) < limit ? from[k] : 0;
    }
    if (shuffle.n > 1) {
      cpu_path().shuffle_positions(shuffle, n, found);
    }
    for (int64_t k = 0; k < n; ++k) {
      out[done + k] = static_cast<uint64_t>(from[k]) < limit ? found[k] : -1;
    }
  }
}

}  // namespace fastseed
