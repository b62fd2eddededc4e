// The operators on the CPU, and what chooses the loops.
#include <algorithm>
#include <iterator>

#include "../core/mt19937.h"
#include "direct.h"
#include "interface.h"
#include "operators.h"
#include "parallel.h"

namespace fastseed {
namespace {

struct Cpu {
  static constexpr bool kIsCuda = false;

  template <class F>
  static void run(const Tensor&, int64_t n, int64_t grain, const F& f) {
    parallel(n, grain, [&](int64_t begin, int64_t end) { f(Range{begin, end}); });
  }

  static const Tensor& copy(const Tensor& tensor, const Tensor&) {
    return tensor;
  }
};

// Rows as Generator.get_state() of a CPU generator of torch: the seed, how many words are left (1)
// and whether it is seeded, the position, the words in 64 bits each, no cached normals.
void mt19937_states(const Tensor& out, const Tensor& keys) {
  constexpr int64_t kHead = 3, kRow = kHead + kMtWords + 5;
  Arguments given("mt19937_states", out);
  int64_t* row = given.write<int64_t>(out, "out", {kAnySize, kRow});
  const uint64_t* key = given.read<uint64_t>(keys, "keys", {out.size(0), 2});
  given.mark_written();
  for (int64_t i = 0; i < keys.size(0); ++i, row += kRow, key += 2) {
    uint32_t words[kMtWords];
    launch_mt19937_expand(Key{key[0], key[1]}, words);
    row[0] = static_cast<int64_t>(key[0]);
    row[1] = int64_t{1} << 32 | 1;
    row[2] = 0;
    std::copy(std::begin(words), std::end(words), row + kHead);
    std::fill(row + kHead + kMtWords, row + kRow, 0);
  }
}

void advise_huge_pages(const Tensor& out) {
  check_memory(out, "advise_huge_pages", "out");
  ask_for_huge_pages(out.data_ptr(), bytes_of(out));
}

std::string names_of_simd_paths() {
  return joined_simd_paths(" ");
}

void derive_range(const Stream& stream, uint64_t start, int64_t n, uint64_t* out) {
  launch_derive_keys(stream, start, n, out, Range{0, n});
}

// The address of the table for `_generators`.
int64_t loop_table() {
  static const std::vector<DirectOperator> direct = direct_operators<Cpu>();
  static const LoopTable table = {derive_range,       launch_mt19937_expand, launch_mt19937_init,
                                  mt19937_init_width, direct.data(),         direct.size(),
                                  &count_write};
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(&table));
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  using namespace fastseed;
  register_operators<Cpu>(m);
  m.impl("mt19937_states", TORCH_BOX(&fastseed::mt19937_states));
  m.impl("advise_huge_pages", TORCH_BOX(&fastseed::advise_huge_pages));
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CompositeExplicitAutograd, m) {
  m.impl("simd_path", TORCH_BOX(&fastseed::simd_path));
  m.impl("simd_paths", TORCH_BOX(&fastseed::names_of_simd_paths));
  m.impl("choose_simd_path", TORCH_BOX(&fastseed::set_simd_path));
  m.impl("loop_table", TORCH_BOX(&fastseed::loop_table));
}
