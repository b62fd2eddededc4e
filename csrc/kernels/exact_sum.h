// Exact sums of memory: the loops behind csrc/core/exact_sum.h.
#pragma once
#include <cstdint>

#include "../core/exact_sum.h"

namespace fastseed {

#define FS_EACH_EXACT(M) M(float) M(double) M(Half) M(BFloat16)

// Adds n values to `total`, or their products with as many factors; those that are the values
// themselves give squares. Limbs have to be carried before, and are afterwards. The total does not
// depend on how values are split over calls and added up.
template <class T>
void launch_exact_sum(const T* values, const T* factors, int64_t n, int64_t* total);

// Parts of a sum on a CUDA device, of one dtype and with factors for all of them or none.
constexpr int kMostExactParts = 32;
template <class T>
struct ExactTable {
  int count;
  const T* values[kMostExactParts];
  const T* factors[kMostExactParts];
  int64_t sizes[kMostExactParts];
};

// The same of at most kMostUncarried values in all, on a CUDA device.
template <class T>
void launch_exact_sum_cuda(const ExactTable<T>& parts, int64_t* total, void* cuda_stream);

}  // namespace fastseed
