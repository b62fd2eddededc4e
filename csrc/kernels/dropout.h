// Host entries of dropout: pointers, counts, no torch. See docs/spec/dropout.md.
#pragma once
#include <cstdint>

#include "../core/dropout.h"
#include "../core/strided_layout.h"

namespace fastseed {

// Writes elements begin to end - 1 of the output, which has keys.count * layout.runs *
// layout.length of them: `in` and `out` point to the first of all.
template <class T>
void launch_dropout(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                    int64_t begin, int64_t end, const T* in, T* out);

// The whole output, on a CUDA stream (a cudaStream_t). All pointers are the device's.
template <class T>
void launch_dropout_cuda(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                         const T* in, T* out, void* cuda_stream);

// out[0], [1], [2] = layer_key(...) of the scope and the count, which are on the device.
void launch_layer_key_cuda(const uint64_t* scope, const int64_t* count, const LayerCall& call,
                           uint64_t* out, void* cuda_stream);

#define FS_EACH_DROPOUT(apply) apply(float) apply(double) apply(Half) apply(BFloat16)

}  // namespace fastseed
