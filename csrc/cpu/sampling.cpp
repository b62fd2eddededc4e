// Races and thresholds of rows: the numbers in chunks, for the loops of the instruction set in use.
//
// A race needs the exact score of few tokens. The greatest number gives a first score to beat; then
// the upper half of a token's word says whether it may beat the best so far.
#include "../core/sampling.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kChunk = kSamplingChunk;
constexpr int64_t kFew = kChunk / 32;  // survivors of a chunk that are scored without its words

// n numbers as float32: themselves, or converted into a buffer of kChunk.
template <class T>
const float* widened(const T* from, int64_t n, float* buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    std::transform(from, from + n, buffer, [](T x) { return to_float(x); });
    return buffer;
  }
}

// The race of one part of a row.
template <class T>
class PartRace {
 public:
  PartRace(const Race& race, const T* numbers, int64_t first, int64_t n)
      : race_(race), numbers_(numbers), first_(first), n_(n), bound_(race) {}

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
    const float* x = read(greatest_at_);
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
    return std::min(n_ - at, kChunk);
  }

  const float* read(int64_t at) {
    return widened(numbers_ + at, length(at), chunk_);
  }

  // The upper halves of the words of n tokens.
  const uint32_t* read_words(int64_t first, int64_t n) {
    const int64_t skip = first % 4;
    fill_words(path_, race_.stream, static_cast<uint64_t>(first / 4), (skip + n + 3) / 4, words_);
    return words_ + skip;
  }

  // Also the chunk that has the greatest number first.
  OrderRange find_greatest() {
    OrderRange all{0xffffffffu, 0};
    for (int64_t at = 0; at < n_; at += kChunk) {
      const OrderRange part = loops_.order_range(read(at), length(at));
      all.least = std::min(all.least, part.least);
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
    const float* x = read(at);
    if (least > kLeastOrder) {
      const int64_t count = loops_.select(x, n, least, kInfinityOrder, found_);
      if (count <= kFew) {
        for (int64_t k = 0; k < count; ++k) {
          consider(x, at, found_[k]);
        }
        return;
      }
    }
    const uint32_t* words = read_words(first_ + at, n);
    // Short steps first: after m tokens the best of them beats the next m but for about one.
    for (int64_t i = 0; i < n;) {
      const int64_t count = std::min(n - i, std::max(at + i, int64_t{64}));
      const ScoreBound bound = bound_;  // raised meanwhile
      const int64_t some = loops_.candidates(bound, x + i, words + i, count, found_);
      for (int64_t k = 0; k < some; ++k) {
        consider(x, at, i + found_[k]);
      }
      i += count;
    }
  }

  const CpuPath& path_ = cpu_path();
  const SamplingLoops& loops_ = path_.sampling;
  const Race& race_;
  const T* numbers_;
  int64_t first_, n_;
  int64_t greatest_at_ = 0;
  Winner best_ = Winner::none();
  ScoreBound bound_;
  alignas(64) float chunk_[kChunk];
  alignas(64) uint32_t words_[kChunk + 8];
  int32_t found_[kChunk];
};

// Counts or masses of a row by a digit of the codes that begin with a prefix.
template <class T>
class Histogram {
 public:
  Histogram(const NumberRows<T>& numbers, const ThresholdRows& rows)
      : numbers_(numbers), rows_(rows) {}

  const int64_t* count(int64_t row, int64_t prefix, int digit) {
    std::memset(bins_, 0, sizeof(bins_));
    const CodeRange codes(rows_.floors[row], prefix, digit);
    if (codes.low >= codes.high) {
      return bins_;
    }
    const int shift = digit * kDigitBits;
    const uint32_t low = static_cast<uint32_t>(codes.low >> kIndexBits);
    const uint32_t high = static_cast<uint32_t>((codes.high - 1) >> kIndexBits);
    for (int64_t at = 0; at < numbers_.size; at += kChunk) {
      const int64_t n = std::min(numbers_.size - at, kChunk);
      const float* x = widened(numbers_.row(row) + at, n, chunk_);
      const int64_t count = loops_.select(x, n, low, high, found_);
      const bool many = rows_.greatest != nullptr && count > n / 8;
      if (many) {
        loops_.masses(x, n, rows_.greatest[row], rows_.temperatures[row], masses_);
      }
      for (int64_t k = 0; k < count; ++k) {
        const int32_t i = found_[k];
        const int64_t code = token_code(x[i], static_cast<uint32_t>(numbers_.first + at + i));
        if (code < codes.low || code >= codes.high) {
          continue;
        }
        bins_[code >> shift & (kBins - 1)] +=
            rows_.greatest == nullptr ? 1
            : many ? masses_[i]
                   : token_mass(x[i], rows_.greatest[row], rows_.temperatures[row]);
      }
    }
    return bins_;
  }

 private:
  const SamplingLoops& loops_ = cpu_path().sampling;
  const NumberRows<T>& numbers_;
  const ThresholdRows& rows_;
  alignas(64) float chunk_[kChunk];
  int32_t found_[kChunk];
  int64_t masses_[kChunk];
  int64_t bins_[kBins];
};

}  // namespace

template <class T>
void launch_race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                 Range part) {
  const int64_t size = (numbers.size + out.parts - 1) / out.parts;
  for (int64_t i = part.begin; i < part.end; ++i) {
    const int64_t row = i / out.parts, at = i % out.parts * size;
    const int64_t rest = std::max(numbers.size - at, int64_t{0});
    const Race race = races.race(row);
    PartRace<T> own(race, numbers.row(row) + (rest > 0 ? at : 0), numbers.first + at,
                    std::min(rest, size));
    const Winner winner = own.run();
    out.scores[i] = winner.score;
    out.tokens[i] = winner.token;
  }
}

template <class T>
void launch_threshold(const NumberRows<T>& numbers, const ThresholdRows& rows, int64_t*,
                      Range part) {
  Histogram<T> histogram(numbers, rows);
  for (int64_t row = part.begin; row < part.end; ++row) {
    Digits found{0, 0};
    for (int digit = kDigits - 1; digit >= 0; --digit) {
      const int64_t* bins = histogram.count(row, found.prefix, digit);
      if (digit == kDigits - 1) {
        found.missing = rows.needed(row, std::accumulate(bins, bins + kBins, int64_t{0}));
      }
      int64_t bin = kBins - 1;
      for (; bin > 0 && bins[bin] < found.missing; --bin) {
        found.missing -= bins[bin];
      }
      found.prefix = found.prefix << kDigitBits | bin;
    }
    rows.out[row] = found.missing > 0 ? found.prefix : rows.floors[row];
  }
}

#define FS_INSTANTIATE(T)                                                                        \
  template void launch_race<T>(const NumberRows<T>&, const RaceRows&, const WinnersOut&, Range); \
  template void launch_threshold<T>(const NumberRows<T>&, const ThresholdRows&, int64_t*, Range);
FS_EACH_NUMBER(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
