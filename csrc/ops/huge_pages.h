// Huge pages for memory that is not written yet.
#pragma once
#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fastseed {

// Fresh memory is mapped page by page as it is first written, and for a large output that costs
// more than to compute it. With 2 MiB pages the kernel is asked 512 times less often. Where the
// kernel refuses, nothing changes, so its answer is not looked at.
inline void ask_for_huge_pages(void* data, int64_t bytes) {
#if defined(__linux__)
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = end / kHugePage * kHugePage;
  if (last > first) {
    (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
#else
  (void)data;
  (void)bytes;
#endif
}

}  // namespace fastseed
