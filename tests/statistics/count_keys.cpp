// Counts equal keys among all of a job: ranks x names x members x scopes, by the library's kernels.
//
//   count_keys MASTER RANKS MEMBERS SCOPES DISTINCT PASSES THREADS NAME...
//
// Scope s is task 1, epoch s modulo DISTINCT, step 0: DISTINCT below SCOPES repeats scopes, to show
// that what is equal is found. Prints one line of JSON.
//
// Ten thousand million keys of 16 bytes fit no memory, so there is one pass over all of them for
// each of PASSES parts: the keys whose highest bits are those of the part are kept, cut to 32 bits
// in one of 4096 buckets that stands for 12 more, and each bucket is sorted. That is exact for the
// top 44 + log2(PASSES) bits of the seeds; a last pass looks up the whole keys behind the few
// equal ones. 4 bytes a key and pass are all that is held.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "../../csrc/core/derive.h"
#include "../../csrc/kernels/derive.h"
#include "../csrc/names.h"

namespace {

using namespace fastseed;

constexpr int kBucketBits = 12;
constexpr int kBuckets = 1 << kBucketBits;

struct Job {
  uint64_t master;
  uint32_t ranks;
  int64_t members;
  uint32_t scopes, distinct;
  int passes, pass_bits;
  int threads;
  std::vector<Name> names;

  uint64_t keys() const {
    return uint64_t{ranks} * names.size() * static_cast<uint64_t>(members) * scopes;
  }
  int fingerprint_bits() const {
    return pass_bits + kBucketBits + 32;
  }
  Stream stream(uint32_t scope, uint32_t rank, const Name& name) const {
    return Stream{name_key(scope_key(master, 1, scope % distinct, 0), name),
                  with_domain(rank, Domain::kStream), 0};
  }
};

void in_threads(const Job& job, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < job.threads; ++t) {
    threads.emplace_back(work, t);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// f(stream, seeds of its members) for this thread's share of the ranks, in every scope.
template <class F>
void each_stream(const Job& job, int thread, const F& f) {
  std::vector<uint64_t> seeds(static_cast<size_t>(job.members));
  const auto share = [&](int t) {
    return static_cast<uint32_t>(uint64_t{job.ranks} * t / job.threads);
  };
  for (uint32_t s = 0; s < job.scopes; ++s) {
    for (const Name& name : job.names) {
      Stream stream = job.stream(s, 0, name);
      for (uint32_t rank = share(thread); rank < share(thread + 1); ++rank) {
        stream.rank_word = with_domain(rank, Domain::kStream);
        launch_derive_seeds(stream, 0, job.members, seeds.data());
        f(s, stream, seeds);
      }
    }
  }
}

// One thread's kept seeds of a pass: `room` slots for each bucket.
struct Buckets {
  std::vector<uint32_t> values;
  std::vector<uint32_t> sizes;
  size_t room;
};

void fill(const Job& job, int thread, uint64_t part, Buckets& buckets) {
  std::fill(buckets.sizes.begin(), buckets.sizes.end(), 0);
  std::vector<uint64_t> kept(static_cast<size_t>(job.members) + 1);
  each_stream(job, thread, [&](uint32_t, const Stream&, const std::vector<uint64_t>& seeds) {
    size_t n = 0;
    for (uint64_t seed : seeds) {
      kept[n] = seed;
      n += job.pass_bits == 0 || seed >> (64 - job.pass_bits) == part;
    }
    for (size_t i = 0; i < n; ++i) {
      const uint64_t rest = kept[i] << job.pass_bits;
      const size_t b = rest >> (64 - kBucketBits);
      const uint32_t at = buckets.sizes[b]++;
      if (at == buckets.room) {
        std::fprintf(stderr, "a bucket has no room: the seeds are far from uniform\n");
        std::exit(1);
      }
      buckets.values[b * buckets.room + at] = static_cast<uint32_t>(rest >> (32 - kBucketBits));
    }
  });
}

// By 11, 11 and 10 bits.
void radix_sort(std::vector<uint32_t>& values, std::vector<uint32_t>& scratch) {
  scratch.resize(values.size());
  for (int shift = 0; shift < 32; shift += 11) {
    uint32_t ends[2049] = {};
    for (uint32_t v : values) {
      ++ends[(v >> shift & 2047) + 1];
    }
    for (int i = 0; i < 2048; ++i) {
      ends[i + 1] += ends[i];
    }
    for (uint32_t v : values) {
      scratch[ends[v >> shift & 2047]++] = v;
    }
    values.swap(scratch);
  }
}

// The fingerprints that occur more than once.
std::vector<uint64_t> repeated(const Job& job) {
  const double mean = static_cast<double>(job.keys()) / job.passes / job.threads / kBuckets;
  const size_t room = static_cast<size_t>(mean * 1.02 + 10 * __builtin_sqrt(mean) + 64);
  std::vector<Buckets> all(job.threads);
  for (Buckets& b : all) {
    b = Buckets{std::vector<uint32_t>(kBuckets * room), std::vector<uint32_t>(kBuckets), room};
  }
  std::vector<std::vector<uint64_t>> found(job.threads);
  for (int part = 0; part < job.passes; ++part) {
    in_threads(job, [&](int t) { fill(job, t, static_cast<uint64_t>(part), all[t]); });
    std::atomic<int> next{0};
    in_threads(job, [&](int t) {
      std::vector<uint32_t> values, scratch;
      for (int b; (b = next++) < kBuckets;) {
        values.clear();
        for (const Buckets& one : all) {
          const auto begin = one.values.begin() + static_cast<std::ptrdiff_t>(b * room);
          values.insert(values.end(), begin, begin + one.sizes[b]);
        }
        radix_sort(values, scratch);
        const uint64_t high = (static_cast<uint64_t>(part) << kBucketBits | b) << 32;
        for (size_t i = 1; i < values.size(); ++i) {
          if (values[i] == values[i - 1]) {
            found[t].push_back(high | values[i]);
          }
        }
      }
    });
  }
  std::vector<uint64_t> fingerprints;
  for (const auto& one : found) {
    fingerprints.insert(fingerprints.end(), one.begin(), one.end());
  }
  std::sort(fingerprints.begin(), fingerprints.end());
  fingerprints.erase(std::unique(fingerprints.begin(), fingerprints.end()), fingerprints.end());
  return fingerprints;
}

struct Found {
  uint64_t lo, hi;
  uint32_t scope;

  bool operator<(const Found& other) const {
    return lo != other.lo ? lo < other.lo : hi != other.hi ? hi < other.hi : scope < other.scope;
  }
};

// Every key with one of these fingerprints, whole.
std::vector<Found> look_up(const Job& job, const std::vector<uint64_t>& fingerprints) {
  constexpr int kBits = 22;  // of two tables of 512 KiB that answer nearly every question
  constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
  const int cut = 64 - job.fingerprint_bits();
  std::vector<bool> tops(kMask + 1), ends(kMask + 1);
  for (uint64_t f : fingerprints) {
    tops[f >> (job.fingerprint_bits() - kBits)] = true;
    ends[f & kMask] = true;
  }
  std::vector<std::vector<Found>> found(job.threads);
  in_threads(job, [&](int t) {
    each_stream(job, t, [&](uint32_t s, const Stream& stream, const std::vector<uint64_t>& seeds) {
      for (size_t i = 0; i < seeds.size(); ++i) {
        const uint64_t f = seeds[i] >> cut;
        if (tops[seeds[i] >> (64 - kBits)] && ends[f & kMask] &&
            std::binary_search(fingerprints.begin(), fingerprints.end(), f)) {
          const Key key = stream_key(stream, i);
          found[t].push_back(Found{key.lo, key.hi, s});
        }
      }
    });
  });
  std::vector<Found> all;
  for (const auto& one : found) {
    all.insert(all.end(), one.begin(), one.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

// Pairs of neighbours of a sorted list that are the same.
template <class Same>
uint64_t pairs(const std::vector<Found>& all, const Same& same) {
  uint64_t count = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = i + 1; j < all.size() && same(all[i], all[j]); ++j) {
      ++count;
    }
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 9) {
    std::fprintf(stderr, "count_keys: needs eight arguments or more, got %d\n", argc - 1);
    return 2;
  }
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 0); };
  Job job{number(1),
          static_cast<uint32_t>(number(2)),
          static_cast<int64_t>(number(3)),
          static_cast<uint32_t>(number(4)),
          static_cast<uint32_t>(number(5)),
          static_cast<int>(number(6)),
          0,
          static_cast<int>(number(7)),
          {}};
  for (int i = 8; i < argc; ++i) {
    job.names.push_back(name_of(argv[i]));
  }
  while (1 << job.pass_bits < job.passes) {
    ++job.pass_bits;
  }
  if (1 << job.pass_bits != job.passes || job.pass_bits > 8) {
    std::fprintf(stderr, "count_keys: PASSES must be a power of two up to 256, got %s\n", argv[6]);
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<uint64_t> fingerprints = repeated(job);
  const std::vector<Found> all = look_up(job, fingerprints);
  const auto same_seed = [](const Found& a, const Found& b) { return a.lo == b.lo; };
  const auto same_key = [](const Found& a, const Found& b) { return a.lo == b.lo && a.hi == b.hi; };
  const auto in_scope = [](const Found& a, const Found& b) {
    return a.lo == b.lo && a.hi == b.hi && a.scope == b.scope;
  };
  const Key last = stream_key(job.stream(job.scopes - 1, job.ranks - 1, job.names.back()),
                              static_cast<uint64_t>(job.members - 1));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf(
      "{\"keys\": %llu, \"fingerprint_bits\": %d, \"repeated_fingerprints\": %zu, "
      "\"looked_up\": %zu, \"equal_seeds\": %llu, \"equal_keys\": %llu, "
      "\"equal_keys_in_a_scope\": %llu, \"last\": [%llu, %llu], \"path\": \"%s\", "
      "\"seconds\": %.1f}\n",
      static_cast<unsigned long long>(job.keys()), job.fingerprint_bits(), fingerprints.size(),
      all.size(), static_cast<unsigned long long>(pairs(all, same_seed)),
      static_cast<unsigned long long>(pairs(all, same_key)),
      static_cast<unsigned long long>(pairs(all, in_scope)),
      static_cast<unsigned long long>(last.lo), static_cast<unsigned long long>(last.hi),
      simd_path().c_str(), took.count());
  return 0;
}
