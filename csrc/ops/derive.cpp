// The operators that derive keys on the CPU, and what chooses the loops.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <iterator>

#include "../core/derive.h"
#include "../core/mt19937.h"
#include "huge_pages.h"
#include "interface.h"
#include "key_ops.h"
#include "parallel.h"
#include "direct.h"

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
    return Stream{name_key(ScopeKey{words[0], words[1]}, name), at.rank_word, at.worker};
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

// Rows as Generator.get_state() of a CPU generator of torch: the seed, how many words are left (1)
// and whether it is seeded, the position, the words in 64 bits each, no cached normals.
void mt19937_states(const Tensor& out, const Tensor& keys) {
  constexpr int64_t kHead = 3, kRow = kHead + kMtWords + 5;
  check_tensor(keys, "mt19937_states", "keys", Dtype::UInt64, {kAnySize, 2}, out);
  check_tensor(out, "mt19937_states", "out", Dtype::Long, {keys.size(0), kRow}, out);
  check_disjoint(out, keys, "mt19937_states", "keys");
  mark_written(out);
  int64_t* row = longs_of(out);
  const uint64_t* key = words_of(keys);
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

void derive_keys(const Tensor& out, uint64_t key, uint64_t tweak, uint32_t rank_word,
                 uint32_t worker, uint64_t start) {
  Cpu::keys(out, Stream{{key, tweak}, rank_word, worker}, start);
}

void derive_seeds(const Tensor& out, uint64_t key, uint64_t tweak, uint32_t rank_word,
                  uint32_t worker, uint64_t start) {
  Cpu::seeds(out, Stream{{key, tweak}, rank_word, worker}, start);
}

constexpr DirectOperator kDirect[] = {
    Direct<&derive_keys>::row("derive_keys"),
    Direct<&derive_seeds>::row("derive_seeds"),
    direct_draw<DrawBits>(),
    direct_draw<DrawReal<Uniform, kDrawUniform>, double, double, double>(),
    direct_draw<DrawReal<Normal, kDrawNormal>, double, double>(),
    direct_draw<DrawReal<Exponential, kDrawExponential>, double>(),
    direct_draw<DrawReal<TruncNormal, kDrawTruncNormal>, double, double, double, double, double,
                double, double, double>(),
    direct_draw<DrawBernoulli, int64_t>(),
    direct_draw<DrawRandInt, int64_t, int64_t>(),
};

// The address of the table for `_generators`.
int64_t loop_table() {
  static const LoopTable table = {launch_derive_keys, launch_mt19937_expand, launch_mt19937_init,
                                  mt19937_init_width, kDirect, std::size(kDirect)};
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(&table));
}

}  // namespace
}  // namespace fastseed

STABLE_TORCH_LIBRARY_IMPL(fastseed, CPU, m) {
  using namespace fastseed;
  FS_REGISTER_KEYS(m, Cpu);
  m.impl("mt19937_states", TORCH_BOX(&fastseed::mt19937_states));
  m.impl("advise_huge_pages", TORCH_BOX(&fastseed::advise_huge_pages));
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CompositeExplicitAutograd, m) {
  m.impl("simd_path", TORCH_BOX(&fastseed::simd_path));
  m.impl("simd_paths", TORCH_BOX(&fastseed::join_simd_paths));
  m.impl("choose_simd_path", TORCH_BOX(&fastseed::choose_simd_path));
  m.impl("loop_table", TORCH_BOX(&fastseed::loop_table));
}
