// Every kernel of this CPU against the core: sizes, alignments, margins, boundaries, splits.
#include "kernel_checks.h"

#include <algorithm>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "../../csrc/core/derive.h"
#include "../../csrc/core/mt19937.h"
#include "check.h"

using namespace fastseed;

namespace {

const Stream kStream{
    {0x75c4f7b9da5a41a6u, 0xbb1b0b05a584a51eu}, with_domain(3, Domain::kStream), 0x670678fdu};

BlockRange range_from(uint64_t start) {
  return BlockRange{kStream.name.key, kStream.name.tweak, kStream.rank_word, kStream.worker, start};
}

Key core_key(const BlockRange& range, int64_t i) {
  const Stream stream{{range.key, range.tweak}, range.w2, range.w3};
  return stream_key(stream, range.start + static_cast<uint64_t>(i));
}

std::vector<const CpuPath*> paths() {
  std::vector<const CpuPath*> all{&kPortablePath};
#if defined(__x86_64__)
  all.push_back(&kAvx2Path);
  all.push_back(&kAvx512Path);
#endif
  all.erase(std::remove_if(all.begin(), all.end(), [](auto* p) { return !p->supported(); }),
            all.end());
  return all;
}

// ------------------------------------------------------------------------------- one call

void check_range(const CpuPath& path, const BlockRange& range, int64_t n, int shift,
                 Stores stores) {
  where = std::string(path.name) + ", start " + std::to_string(range.start) + ", n " +
          std::to_string(n) + ", shift " + std::to_string(shift) +
          (stores == Stores::kStreaming ? ", streaming" : ", cached");
  Poisoned<uint64_t> low(n, shift), both(2 * n, shift);
  path.derive_seeds(range, n, low.data(), stores);
  path.derive_keys(range, n, both.data(), stores);
  low.check_margins();
  both.check_margins();
  for (int64_t i = 0; i < n; ++i) {
    const Key key = core_key(range, i);
    check(low.data()[i] == key.lo, "derive_seeds");
    check(both.data()[2 * i] == key.lo && both.data()[2 * i + 1] == key.hi, "derive_keys");
  }
}

// Every size that has all kinds of tails, each way to be misaligned, over every boundary: of 32
// bits, of 64 bits (the index wraps around), and of none.
void check_sizes(const CpuPath& path) {
  const uint64_t starts[] = {0,
                             12345,
                             (uint64_t{1} << 32) - 33,
                             (uint64_t{1} << 40) - 7,
                             (uint64_t{5} << 32) - 1,
                             ~uint64_t{0} - 20};
  for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
    for (const uint64_t start : starts) {
      for (int64_t n = 0; n < 68; ++n) {
        for (int shift = 0; shift < 8; ++shift) {
          check_range(path, range_from(start), n, shift, stores);
        }
      }
      for (const int64_t n : {95, 96, 97, 131, 1000, 4099}) {
        check_range(path, range_from(start), n, static_cast<int>(n % 8), stores);
      }
    }
  }
}

// The same from allocations of exactly the size, for a sanitizer to guard both ends; and from
// tweaks that are all zero and all one.
void check_exact_allocations(const CpuPath& path) {
  for (const uint64_t tweak : {uint64_t{0}, ~uint64_t{0}}) {
    for (int64_t n = 0; n < 68; ++n) {
      BlockRange range = range_from((uint64_t{1} << 32) - 20);
      range.tweak = tweak;
      where = std::string(path.name) + ", exact allocation, n " + std::to_string(n);
      std::vector<uint64_t> low(static_cast<size_t>(n)), both(2 * static_cast<size_t>(n));
      path.derive_seeds(range, n, low.data(), Stores::kStreaming);
      path.derive_keys(range, n, both.data(), Stores::kStreaming);
      for (int64_t i = 0; i < n; ++i) {
        const Key key = core_key(range, i);
        const size_t at = static_cast<size_t>(i);
        check(low[at] == key.lo, "derive_seeds");
        check(both[2 * at] == key.lo && both[2 * at + 1] == key.hi, "derive_keys");
      }
    }
  }
}

// A key for each seed, with and without indices, with every kind of tail.
void check_keys_of_seeds(const CpuPath& path) {
  const Name name{0xf2860cc6670678fdu, 0xd91a4120d8c6505cu};
  std::mt19937_64 numbers(11);
  for (int64_t n = 0; n < 68; ++n) {
    where = std::string(path.name) + ", keys of " + std::to_string(n) + " seeds";
    std::vector<uint64_t> seeds{0, ~uint64_t{0}, 1}, exact(2 * static_cast<size_t>(n));
    std::vector<int64_t> indices{-1, 0, INT64_MIN};
    while (seeds.size() < static_cast<size_t>(n)) {
      seeds.push_back(numbers());
      indices.push_back(static_cast<int64_t>(numbers()));
    }
    for (const bool indexed : {false, true}) {
      Poisoned<uint64_t> keys(2 * n, static_cast<int>(n % 8));
      path.keys_of_seeds(seeds.data(), indexed ? indices.data() : nullptr, name, n, keys.data());
      path.keys_of_seeds(seeds.data(), indexed ? indices.data() : nullptr, name, n, exact.data());
      keys.check_margins();
      for (int64_t i = 0; i < n; ++i) {
        const size_t at = static_cast<size_t>(i);
        const Key key =
            key_of_seed(seeds[at], name, indexed ? static_cast<uint64_t>(indices[at]) : 0);
        check(keys.data()[2 * i] == key.lo && keys.data()[2 * i + 1] == key.hi, "keys_of_seeds");
        check(exact[2 * at] == key.lo && exact[2 * at + 1] == key.hi, "keys_of_seeds, exact");
      }
    }
  }
}

// ------------------------------------------------------------------------------- many calls

// Large enough for the stores that pass the caches by; over a boundary of 32 bits.
void check_large(const std::string& name, const std::vector<Key>& expected, uint64_t start) {
  where = name + ", large";
  const int64_t n = static_cast<int64_t>(expected.size());
  for (const int shift : {0, 3}) {
    Poisoned<uint64_t> seeds(n, shift), keys(2 * n, shift);
    launch_derive_seeds(kStream, start, n, seeds.data(), Range{0, n});
    launch_derive_keys(kStream, start, n, keys.data(), Range{0, n});
    seeds.check_margins();
    keys.check_margins();
    for (int64_t i = 0; i < n; ++i) {
      const Key& key = expected[static_cast<size_t>(i)];
      check(seeds.data()[i] == key.lo, "launch_derive_seeds");
      check(keys.data()[2 * i] == key.lo && keys.data()[2 * i + 1] == key.hi, "launch_derive_keys");
    }
  }
}

// A range cut anywhere, one piece a thread, is the whole range.
void check_splits(const std::string& name, const std::vector<Key>& expected, uint64_t start) {
  const int64_t n = 20011;
  std::mt19937 cuts_from(7);
  for (int trial = 0; trial < 8; ++trial) {
    where = name + ", split " + std::to_string(trial);
    std::vector<int64_t> cuts{0, n};
    for (int k = 0; k < 5; ++k) {
      cuts.push_back(static_cast<int64_t>(cuts_from() % static_cast<uint32_t>(n)));
    }
    std::sort(cuts.begin(), cuts.end());
    Poisoned<uint64_t> seeds(n, trial % 8), keys(2 * n, trial % 8);
    std::vector<std::thread> threads;
    for (size_t k = 0; k + 1 < cuts.size(); ++k) {
      threads.emplace_back([&, part = Range{cuts[k], cuts[k + 1]}] {
        launch_derive_seeds(kStream, start, n, seeds.data(), part);
        launch_derive_keys(kStream, start, n, keys.data(), part);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    seeds.check_margins();
    keys.check_margins();
    for (int64_t i = 0; i < n; ++i) {
      const Key& key = expected[static_cast<size_t>(i)];
      check(seeds.data()[i] == key.lo && keys.data()[2 * i] == key.lo &&
                keys.data()[2 * i + 1] == key.hi,
            "a split range");
    }
  }
}

// ------------------------------------------------------------------------------- MT19937

// A fresh std::mt19937 prints the 624 words that its seed gave it (the standard says so).
void check_init() {
  for (const uint32_t seed : {0u, 1u, 5489u, 0x80000000u, 0xffffffffu}) {
    where = "mt19937_init of " + std::to_string(seed);
    Poisoned<uint32_t> state(kMtWords, 1);
    mt19937_init(seed, state.data());
    state.check_margins();
    std::stringstream standard;
    standard << std::mt19937(seed);
    for (int i = 0; i < kMtWords; ++i) {
      uint32_t word = 0;
      standard >> word;
      check(state.data()[i] == word, "the words of std::mt19937");
    }
  }
}

// Any number of states, somewhere in memory, with and without a hint of what comes next.
void check_init_side_by_side(const std::string& name) {
  for (int n = 0; n < 37; ++n) {
    where = name + ", launch_mt19937_init, n " + std::to_string(n);
    std::vector<Poisoned<uint32_t>> states;
    std::vector<uint32_t> seeds;
    std::vector<uint32_t*> pointers;
    for (int i = 0; i < n; ++i) {
      states.emplace_back(kMtWords, i % 16);
      seeds.push_back(static_cast<uint32_t>(i) * 0x9e3779b9u + (i % 5 == 0 ? 0x80000000u : 0u));
    }
    for (auto& state : states) {
      pointers.push_back(state.data());
    }
    std::vector<uint32_t*> next(pointers.rbegin(), pointers.rend());
    launch_mt19937_init(seeds.data(), pointers.data(), n % 2 == 0 ? next.data() : nullptr, n);
    for (size_t i = 0; i < states.size(); ++i) {
      uint32_t expected[kMtWords];
      mt19937_init(seeds[i], expected);
      states[i].check_margins();
      check(std::equal(expected, expected + kMtWords, pointers[i]), "a state of several");
    }
  }
  check(mt19937_init_width() >= 1 && kMtWords % mt19937_init_width() == 0, "the width");
}

void check_choice() {
  where = "choosing a path";
  const std::vector<std::string> names = simd_paths();
  check(!names.empty() && names.front() == "portable", "portable is always there, first");
  check(names.size() == paths().size(), "every supported path has a name");
  for (const std::string& name : names) {
    set_simd_path(name);
    check(simd_path() == name, "set_simd_path");
  }
  bool refused = false;
  try {
    set_simd_path("sse9");
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  check(refused && simd_path() == names.back(), "an unknown path is refused and changes nothing");
  set_simd_path(names.front());
  set_simd_path("");
  check(simd_path() == names.back(), "no name is the fastest");
}

}  // namespace

void check_paths_agree(const BlockRange& range, Key expected) {
  constexpr int64_t kLength = 127;
  const int64_t before = static_cast<int64_t>((range.start ^ range.key) % 61);
  BlockRange around = range;
  around.start -= static_cast<uint64_t>(before);
  for (const CpuPath* path : paths()) {
    uint64_t both[2 * kLength], low[kLength];
    path->derive_keys(around, kLength, both, Stores::kCached);
    path->derive_seeds(around, kLength, low, Stores::kCached);
    check(both[2 * before] == expected.lo && both[2 * before + 1] == expected.hi, path->name);
    check(low[before] == expected.lo, path->name);
  }
}

void check_kernels() {
  check_choice();
  check_init();
  const uint64_t start = (uint64_t{3} << 32) - 10007;
  std::vector<Key> expected;
  for (int64_t i = 0; i < (1 << 19) + 77; ++i) {
    expected.push_back(core_key(range_from(start), i));
  }
  for (const CpuPath* path : paths()) {
    check_sizes(*path);
    check_exact_allocations(*path);
    check_keys_of_seeds(*path);
  }
  for (const std::string& name : simd_paths()) {
    set_simd_path(name);
    check_large(name, expected, start);
    check_splits(name, expected, start);
    check_init_side_by_side(name);
  }
}
