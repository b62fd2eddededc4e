// Races and histograms of rows: the numbers in chunks, for the loops of the instruction set in use.
//
// A race needs the exact score of few tokens. The greatest number gives a first score to beat; then
// the upper half of a token's word says whether it may beat the best so far.
#include "../kernels/sampling.h"

#include <cstring>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kChunk = kSamplingChunk;
constexpr int64_t kFew = kChunk / 32;  // survivors of a chunk that are scored without its words

template <class T>
struct Chunk {
  alignas(64) float widened[kChunk];

  const float* read(const T* from, int64_t n) {
    if constexpr (sizeof(T) == 4) {
      (void)n;
      return from;
    } else {
      for (int64_t i = 0; i < n; ++i) {
        widened[i] = to_float(from[i]);
      }
      return widened;
    }
  }
};

// Upper halves of the words of consecutive tokens.
class TokenWords {
 public:
  TokenWords(const CpuPath& path, Key stream) : path_(path), stream_(stream) {}

  const uint32_t* read(int64_t first, int64_t n) {
    const int64_t block = first / 4, skip = first % 4;
    const int64_t blocks = (skip + n + 3) / 4;
    const BlockRange range{stream_.lo, 0, static_cast<uint32_t>(stream_.hi),
                           static_cast<uint32_t>(stream_.hi >> 32), static_cast<uint64_t>(block)};
    path_.derive_keys(range, blocks, reinterpret_cast<Pair*>(words_), Stores::kCached);
    return words_ + skip;
  }

 private:
  typedef uint64_t __attribute__((may_alias)) Pair;
  const CpuPath& path_;
  Key stream_;
  alignas(64) uint32_t words_[kChunk + 8];
};

// The race of one part of a row.
template <class T>
class PartRace {
 public:
  PartRace(const Race& race, const T* numbers, int64_t first, int64_t n)
      : race_(race),
        numbers_(numbers),
        first_(first),
        n_(n),
        bound_(race),
        words_(cpu_path(), race.stream) {}

  Winner run() {
    if (!is_temperature(race_.temperature)) {
      return Winner::invalid();
    }
    const OrderRange all = find_greatest();
    if (n_ == 0 || is_invalid(all.least, all.greatest)) {
      return n_ == 0 ? Winner::none() : Winner::invalid();
    }
    const uint32_t least = static_cast<uint32_t>(race_.threshold >> kIndexBits);
    if (all.greatest < least) {
      return best_;
    }
    const float* x = chunk_.read(numbers_ + greatest_at_, length(greatest_at_));
    (void)loops_.select(x, length(greatest_at_), all.greatest, all.greatest, found_);
    consider(x, greatest_at_, found_[0]);
    if (race_.temperature != 0.0) {
      for (int64_t at = 0; at < n_; at += kChunk) {
        run_chunk(at, least);
      }
    }
    return best_;
  }

 private:
  int64_t length(int64_t at) const {
    return n_ - at < kChunk ? n_ - at : kChunk;
  }

  // Also the chunk that has the greatest number first.
  OrderRange find_greatest() {
    OrderRange all{0xffffffffu, 0};
    for (int64_t at = 0; at < n_; at += kChunk) {
      const OrderRange part =
          loops_.order_range(chunk_.read(numbers_ + at, length(at)), length(at));
      all.least = part.least < all.least ? part.least : all.least;
      if (part.greatest > all.greatest) {
        all.greatest = part.greatest;
        greatest_at_ = at;
      }
    }
    return all;
  }

  void consider(const float* x, int64_t at, int64_t i) {
    const uint32_t token = static_cast<uint32_t>(first_ + at + i);
    if (race_.survives(x[i], token)) {
      const Winner winner{race_.score(x[i], token), token};
      if (winner.beats(best_)) {
        best_ = winner;
        bound_.raise(best_.score);
      }
    }
  }

  void run_chunk(int64_t at, uint32_t least) {
    const int64_t n = length(at);
    const float* x = chunk_.read(numbers_ + at, n);
    if (least > kLeastOrder) {
      const int64_t count = loops_.select(x, n, least, kInfinityOrder, found_);
      if (count <= kFew) {
        for (int64_t k = 0; k < count; ++k) {
          consider(x, at, found_[k]);
        }
        return;
      }
    }
    const uint32_t* words = words_.read(first_ + at, n);
    // Short steps first: after m tokens the best of them beats the next m but for about one.
    for (int64_t i = 0; i < n;) {
      const int64_t so_far = at + i, step = so_far < 64 ? 64 : so_far;
      const int64_t count = n - i < step ? n - i : step;
      const ScoreBound bound = bound_;  // raised meanwhile
      const int64_t some = loops_.candidates(bound, x + i, words + i, count, found_);
      for (int64_t k = 0; k < some; ++k) {
        consider(x, at, i + found_[k]);
      }
      i += count;
    }
  }

  const SamplingLoops& loops_ = cpu_path().sampling;
  const Race& race_;
  const T* numbers_;
  int64_t first_, n_;
  int64_t greatest_at_ = 0;
  Winner best_ = Winner::none();
  ScoreBound bound_;
  Chunk<T> chunk_;
  TokenWords words_;
  int32_t found_[kChunk];
};

}  // namespace

template <class T>
void launch_race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                 int64_t begin, int64_t end) {
  const int64_t size = (numbers.size + out.parts - 1) / out.parts;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = i / out.parts, at = i % out.parts * size;
    const int64_t rest = numbers.size > at ? numbers.size - at : 0;
    const Race race = races.race(row);
    PartRace<T> part(race, numbers.row(row) + (rest > 0 ? at : 0), numbers.first + at,
                     rest < size ? rest : size);
    const Winner winner = part.run();
    out.scores[i] = winner.score;
    out.tokens[i] = winner.token;
  }
}

template <class T>
void launch_histogram(const NumberRows<T>& numbers, const DigitRows& digits, int64_t* out,
                      int64_t begin, int64_t end) {
  const SamplingLoops& loops = cpu_path().sampling;
  const int shift = digits.digit * kDigitBits;
  Chunk<T> chunk;
  int32_t found[kChunk];
  int64_t masses[kChunk];
  for (int64_t row = begin; row < end; ++row) {
    int64_t* bins = out + row * kBins;
    std::memset(bins, 0, kBins * sizeof(*bins));
    const CodeRange codes = code_range(digits, row);
    if (codes.low >= codes.high) {
      continue;
    }
    const uint32_t low = static_cast<uint32_t>(codes.low >> kIndexBits);
    const uint32_t high = static_cast<uint32_t>((codes.high - 1) >> kIndexBits);
    for (int64_t at = 0; at < numbers.size; at += kChunk) {
      const int64_t n = numbers.size - at < kChunk ? numbers.size - at : kChunk;
      const float* x = chunk.read(numbers.row(row) + at, n);
      const int64_t count = loops.select(x, n, low, high, found);
      const bool many = digits.greatest != nullptr && count > n / 8;
      if (many) {
        loops.masses(x, n, digits.greatest[row], digits.temperatures[row], masses);
      }
      for (int64_t k = 0; k < count; ++k) {
        const int32_t i = found[k];
        const int64_t code = token_code(x[i], static_cast<uint32_t>(numbers.first + at + i));
        if (code < codes.low || code >= codes.high) {
          continue;
        }
        bins[code >> shift & (kBins - 1)] +=
            digits.greatest == nullptr ? 1
            : many ? masses[i]
                   : token_mass(x[i], digits.greatest[row], digits.temperatures[row]);
      }
    }
  }
}

#define FS_INSTANTIATE(T)                                                                         \
  template void launch_race<T>(const NumberRows<T>&, const RaceRows&, const WinnersOut&, int64_t, \
                               int64_t);                                                          \
  template void launch_histogram<T>(const NumberRows<T>&, const DigitRows&, int64_t*, int64_t,    \
                                    int64_t);
FS_EACH_NUMBER(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
