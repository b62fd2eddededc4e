// Chooses the loop for this CPU; and the one in plain C++.
#include "shuffle.h"

#include <string>

#include "dispatch.h"

namespace fastseed {
namespace {

ShuffleLoop loop() {
#if defined(__x86_64__)
  const std::string name = cpu_path().name;
  if (name == "avx512") {
    return shuffle_avx512;
  }
  if (name == "avx2") {
    return shuffle_avx2;
  }
#endif
  return shuffle_portable;
}

}  // namespace

void shuffle_portable(const Shuffle& shuffle, const Positions& at, int64_t* out) {
  // Side by side, since each is one long chain of dependent steps.
  constexpr int kSideBySide = 8;
  for (int64_t k = 0; k < at.count; k += kSideBySide) {
    const int m = static_cast<int>(at.count - k < kSideBySide ? at.count - k : kSideBySide);
    uint32_t left[kSideBySide], right[kSideBySide];
    for (int g = 0; g < m; ++g) {
      left[g] = static_cast<uint32_t>(at[k + g] / shuffle.b);
      right[g] = static_cast<uint32_t>(at[k + g] % shuffle.b);
    }
    for (int r = 0; r < shuffle.rounds; r += 2) {
      for (int g = 0; g < m; ++g) {
        left[g] = shuffle_step(shuffle, r, right[g], left[g], shuffle.a);
      }
      for (int g = 0; g < m; ++g) {
        right[g] = shuffle_step(shuffle, r + 1, left[g], right[g], shuffle.b);
      }
    }
    for (int g = 0; g < m; ++g) {
      out[k + g] = shuffle_walk(shuffle, static_cast<int64_t>(left[g]) * shuffle.b + right[g]);
    }
  }
}

void launch_shuffle(const Shuffle& shuffle, const Positions& at, int64_t* out) {
  if (shuffle.n == 1) {  // what the walk would come to, after long
    for (int64_t k = 0; k < at.count; ++k) {
      out[k] = 0;
    }
    return;
  }
  loop()(shuffle, at, out);
}

}  // namespace fastseed
