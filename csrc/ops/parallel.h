// Work cut over torch's threads, as many as torch.set_num_threads() says.
#pragma once
#include <torch/csrc/stable/c/shim.h>
#include <torch/headeronly/util/Exception.h>

#include <cstdint>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace fastseed {

#if defined(__unix__) || defined(__APPLE__)
inline const pid_t kLoadedIn = getpid();

// OpenMP in a child of fork would wait for ever for the threads that its parent had.
inline bool forked() {
  return getpid() != kLoadedIn;
}
#else
inline bool forked() {
  return false;
}
#endif

// f(begin, end) over parts of [0, n) of at least `grain`, all of it here where that is not more
// than one part.
template <class F>
void parallel(int64_t n, int64_t grain, const F& f) {
  if (n <= grain || forked()) {
    f(int64_t{0}, n);
    return;
  }
  auto call = [](int64_t begin, int64_t end, void* context) {
    (*static_cast<const F*>(context))(begin, end);
  };
  void* context = const_cast<void*>(static_cast<const void*>(&f));
  STD_TORCH_CHECK(torch_parallel_for(0, n, grain, call, context) == AOTI_TORCH_SUCCESS,
                  "fastseed: a worker thread failed");
}

}  // namespace fastseed
