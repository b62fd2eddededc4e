// Host entries of perturbations: pointers, counts, no torch. See docs/spec/perturb.md.
#pragma once
#include "../core/perturb.h"
#include "../core/strided_layout.h"

namespace fastseed {

// What to do to a tensor: add all entries and store once; add one with bytes and a list that undo
// it; undo it, but for the numbers in the list. (Each of the operator: add, entry by entry.)
enum class Perturb : int64_t { kAdd, kEach, kRecord, kUndo };

// Entry e is scales[e] times the noise of key (keys[2 e], keys[2 e + 1]). The list is `capacity`
// rows of an index and the bits before, behind a row that counts them.
template <class T>
struct Perturbation {
  Perturb action;
  bool rademacher;
  int64_t entries;
  const uint64_t* keys;
  const double* scales;
  T* numbers;
  int8_t* bytes;
  int64_t* list;
  int64_t capacity;
};

// Numbers begin to end - 1 of those that the layout has.
template <class T>
void launch_perturb(const Perturbation<T>& what, const Layout& layout, int64_t begin, int64_t end);

// All of them, on a CUDA stream (a cudaStream_t). All pointers are the device's.
template <class T>
void launch_perturb_cuda(const Perturbation<T>& what, const Layout& layout, void* cuda_stream);

}  // namespace fastseed
