// Host entries of the draws: pointers, counts, no torch. See docs/spec/random.md.
//
// Every distribution of FS_EACH_DISTRIBUTION (core/draw.h) is there on the CPU (launch_draw) and on
// CUDA devices (launch_draw_cuda).
#pragma once
#include <cstdint>

#include "../core/draw.h"
#include "../core/strided_layout.h"

namespace fastseed {

// Row r of an output is drawn from key (keys[2 r], keys[2 r + 1]) at positions[r], or 0 if null.
struct Streams {
  const uint64_t* keys;
  const int64_t* positions;
  int64_t count;
};

// Writes values begin to end - 1 of the output, which has streams.count * layout.runs *
// layout.length of them, and nothing else: out points to the first of all, not to `begin`.
template <class D>
void launch_draw(const D& distribution, const Streams& streams, const Layout& layout, int64_t begin,
                 int64_t end, typename D::Value* out);

// The whole output, on a CUDA stream (a cudaStream_t). All pointers are the device's.
template <class D>
void launch_draw_cuda(const D& distribution, const Streams& streams, const Layout& layout,
                      typename D::Value* out, void* cuda_stream);

}  // namespace fastseed
