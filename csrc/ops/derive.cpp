// The operators that derive keys on the CPU, and what chooses the loops.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "../kernels/derive.h"
#include "huge_pages.h"
#include "interface.h"
#include "key_ops.h"
#include "parallel.h"

namespace fastseed {
namespace {

// Below this a second thread costs more than it brings (about 20 microseconds of work).
constexpr int64_t kGrain = 1 << 15;

void zero(const Tensor& positions) {
  int64_t* data = longs_of(positions);
  parallel(positions.size(0), kGrain,
           [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, 0); });
}

struct Cpu {
  static Stream stream_at(const Tensor& scope, const Name& name, const StreamWords& at) {
    const uint64_t* words = words_of(scope);
    return Stream{name_key(Scope{words[0], words[1]}, name), at.rank_word, at.worker};
  }

  static void keys(const Tensor& out, const Stream& stream, uint64_t start) {
    uint64_t* data = words_of(out);
    parallel(out.size(0), kGrain, [&](int64_t begin, int64_t end) {
      launch_derive_keys(stream, start + static_cast<uint64_t>(begin), end - begin,
                         data + 2 * begin);
    });
  }

  static void seeds(const Tensor& out, const Stream& stream, uint64_t start) {
    uint64_t* data = words_of(out);
    parallel(out.size(0), kGrain, [&](int64_t begin, int64_t end) {
      launch_derive_seeds(stream, start + static_cast<uint64_t>(begin), end - begin, data + begin);
    });
  }

  static void reseed(const Tensor& keys_out, const Tensor& positions, const Stream& stream,
                     uint64_t start) {
    keys(keys_out, stream, start);
    zero(positions);
  }

  static void reseed_from(const Tensor& keys_out, const Tensor& positions, const uint64_t* seeds,
                          const int64_t* indices, const Name& name) {
    uint64_t* data = words_of(keys_out);
    parallel(keys_out.size(0), kGrain, [&](int64_t begin, int64_t end) {
      launch_keys_of_seeds(seeds + begin, indices == nullptr ? nullptr : indices + begin, name,
                           end - begin, data + 2 * begin);
    });
    zero(positions);
  }
};

// `numbers` are below 2^bits.
void check_numbers(const Tensor& numbers, int bits, const char* op, const char* argument) {
  const uint64_t* data = words_of(numbers);
  const int64_t n = numbers.numel();
  const uint64_t all = std::accumulate(data, data + n, uint64_t{0}, std::bit_or<uint64_t>());
  STD_TORCH_CHECK(all >> bits == 0, "fastseed.", op, ": ", argument, " must be in [0, 2**", bits,
                  ")");
}

// The seeds of every index (rows) with workers (columns) and a rank, of its own or of all rows.
void derive_seed_grid(const Tensor& out, const Tensor& indices, const Tensor& workers,
                      const Tensor& ranks, int64_t key, int64_t tweak) {
  constexpr const char* kOp = "derive_seed_grid";
  check_tensor(indices, kOp, "indices", Dtype::UInt64, {kAnySize}, out);
  const int64_t rows = indices.size(0);
  check_tensor(workers, kOp, "workers", Dtype::UInt64, {kAnySize, kAnySize}, out);
  const int64_t columns = workers.size(1);
  check_tensor(ranks, kOp, "ranks", Dtype::UInt64, {kAnySize}, out);
  const bool own_workers = workers.size(0) != 1, own_ranks = ranks.size(0) != 1;
  STD_TORCH_CHECK(
      (!own_workers || workers.size(0) == rows) && (!own_ranks || ranks.size(0) == rows),
      "fastseed.", kOp, ": workers and ranks must have 1 or ", rows, " rows");
  check_tensor(out, kOp, "out", Dtype::UInt64, {rows, columns}, out);
  check_disjoint(out, indices, kOp, "indices");
  check_disjoint(out, workers, kOp, "workers");
  check_disjoint(out, ranks, kOp, "ranks");
  check_numbers(workers, 32, kOp, "workers");
  check_numbers(ranks, 24, kOp, "ranks");
  mark_written(out);
  const SeedGrid grid{{static_cast<uint64_t>(key), static_cast<uint64_t>(tweak)},
                      words_of(indices),
                      words_of(workers),
                      words_of(ranks),
                      columns,
                      own_workers ? columns : 0,
                      own_ranks ? 1 : 0};
  uint64_t* data = words_of(out);
  parallel(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (begin < end) {
      launch_derive_seed_grid(grid, begin, end - begin, data + begin);
    }
  });
}

void advise_huge_pages(const Tensor& out) {
  check_memory(out, "advise_huge_pages", "out");
  ask_for_huge_pages(out.data_ptr(), bytes_of(out));
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

// The address of the table for `_generators`.
int64_t loop_table() {
  static const LoopTable table = {launch_derive_keys, launch_mt19937_expand, launch_mt19937_init,
                                  mt19937_init_width};
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(&table));
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  using namespace fastseed;
  FS_REGISTER_KEYS(m, Cpu);
  m.impl("derive_seed_grid", TORCH_BOX(&fastseed::derive_seed_grid));
  m.impl("advise_huge_pages", TORCH_BOX(&fastseed::advise_huge_pages));
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CompositeExplicitAutograd, m) {
  m.impl("simd_path", TORCH_BOX(&fastseed::simd_path));
  m.impl("simd_paths", TORCH_BOX(&fastseed::join_simd_paths));
  m.impl("choose_simd_path", TORCH_BOX(&fastseed::choose_simd_path));
  m.impl("loop_table", TORCH_BOX(&fastseed::loop_table));
}
