// The registered operators, behind LibTorch's stable ABI: this file compiles in seconds, uses no
// CPython symbol, and one binary of it serves every torch from 2.10.
#include <torch/csrc/stable/library.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "../cpu/derive.h"
#include "parallel.h"
#include "tensor_checks.h"

namespace fastseed {
namespace {

// Below this a second thread costs more than it brings (about 20 microseconds of work).
constexpr int64_t kGrain = 1 << 15;

// Fresh memory is mapped page by page as it is first written, and for a large output that costs
// more than the derivation. With 2 MiB pages the kernel is asked 512 times less often.
constexpr int64_t kHugePage = int64_t{2} << 20;

void check_out(const Tensor& out, const char* op, int64_t words) {
  STD_TORCH_CHECK(out.scalar_type() == Dtype::UInt64, "fastseed.", op,
                  ": out must be a tensor of torch.uint64");
  check_memory(out, op, "out");
  STD_TORCH_CHECK(words == 1 ? out.dim() == 1 : out.dim() == 2 && out.size(1) == words, "fastseed.",
                  op, ": out must be of shape ", words == 1 ? "(n,)" : "(n, 2)");
}

// Integers of a schema are signed 64-bit; the derivation's are unsigned: same bits.
Stream stream_of(int64_t key, int64_t tweak, int64_t rank_word, int64_t worker) {
  return Stream{{static_cast<uint64_t>(key), static_cast<uint64_t>(tweak)},
                static_cast<uint32_t>(rank_word),
                static_cast<uint32_t>(worker)};
}

void derive_keys(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word, int64_t worker,
                 int64_t start) {
  check_out(out, "derive_keys", 2);
  const Stream stream = stream_of(key, tweak, rank_word, worker);
  mark_written(out);
  uint64_t* data = static_cast<uint64_t*>(out.data_ptr());
  parallel(out.size(0), kGrain, [&](int64_t begin, int64_t end) {
    launch_derive_keys(stream, static_cast<uint64_t>(start) + static_cast<uint64_t>(begin),
                       end - begin, data + 2 * begin);
  });
}

void derive_seeds(const Tensor& out, int64_t key, int64_t tweak, int64_t rank_word, int64_t worker,
                  int64_t start) {
  check_out(out, "derive_seeds", 1);
  const Stream stream = stream_of(key, tweak, rank_word, worker);
  mark_written(out);
  uint64_t* data = static_cast<uint64_t*>(out.data_ptr());
  parallel(out.size(0), kGrain, [&](int64_t begin, int64_t end) {
    launch_derive_seeds(stream, static_cast<uint64_t>(start) + static_cast<uint64_t>(begin),
                        end - begin, data + begin);
  });
}

// A hint, about memory that nobody has written yet; where the kernel does not take it nothing
// changes, so its answer is not looked at.
void advise_huge_pages(const Tensor& out) {
#if defined(__linux__)
  check_memory(out, "advise_huge_pages", "out");
  const uintptr_t begin = reinterpret_cast<uintptr_t>(out.data_ptr());
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes_of(out));
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = end / kHugePage * kHugePage;
  if (last > first) {
    (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
#else
  (void)out;
#endif
}

std::string join_simd_paths() {
  std::string names;
  for (const std::string& name : simd_paths()) {
    names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

void choose_simd_path(std::string name) {
  set_simd_path(name);
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY(fastseed, m) {
  m.def(
      "derive_keys(Tensor(a!) out, int key, int tweak, int rank_word, int worker, int start) -> "
      "()");
  m.def(
      "derive_seeds(Tensor(a!) out, int key, int tweak, int rank_word, int worker, int start) -> "
      "()");
  m.def("advise_huge_pages(Tensor(a!) out) -> ()");
  m.def("simd_path() -> str");
  m.def("simd_paths() -> str");
  m.def("choose_simd_path(str name) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  m.impl("derive_keys", TORCH_BOX(&fastseed::derive_keys));
  m.impl("derive_seeds", TORCH_BOX(&fastseed::derive_seeds));
  m.impl("advise_huge_pages", TORCH_BOX(&fastseed::advise_huge_pages));
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CompositeExplicitAutograd, m) {
  m.impl("simd_path", TORCH_BOX(&fastseed::simd_path));
  m.impl("simd_paths", TORCH_BOX(&fastseed::join_simd_paths));
  m.impl("choose_simd_path", TORCH_BOX(&fastseed::choose_simd_path));
}
