// Sampling on CUDA devices: races of parts of rows, a warp each, and thresholds, digit by digit.
//
// As on the CPU, few tokens need their exact score: the upper half of a token's word says whether
// it may beat the best so far. Which tokens are tried changes no bit of the winner.
#include "../core/sampling.h"
#include "device.cuh"

namespace fastseed {
namespace {

constexpr int kLanes = 32;

FS_DEVICE float load_number(const float* at) {
  return __ldg(at);
}
FS_DEVICE float load_number(const Half* at) {
  return to_float(Half{__ldg(reinterpret_cast<const uint16_t*>(at))});
}
FS_DEVICE float load_number(const BFloat16* at) {
  return to_float(BFloat16{__ldg(reinterpret_cast<const uint16_t*>(at))});
}

FS_DEVICE Winner better(const Winner& a, const Winner& b) {
  return a.is_invalid() || (!b.is_invalid() && !b.beats(a)) ? a : b;
}

// The best of the lanes, in all of them; a host has no warps, and each thread keeps its own.
FS_DEVICE Winner best_of_warp(Winner best) {
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    const double score = __shfl_xor_sync(0xffffffffu, best.score, lanes);
    const int64_t token = __shfl_xor_sync(0xffffffffu, best.token, lanes);
    best = better(best, Winner{score, token});
  }
#endif
  return best;
}

// A lane's share of a part: columns begin to end - 1 of a row, four tokens of a block at a time.
template <class T>
struct LaneRace {
  Race race;
  const T* numbers;
  int64_t first;
  int64_t begin, end;
  Winner best = Winner::none();
  uint32_t least = 0xffffffffu, greatest = 0;  // orders

  FS_DEVICE void try_block(int64_t block, const ScoreBound& bound) {
    const int64_t column = 4 * block - first;
    const uint32_t threshold = static_cast<uint32_t>(race.threshold >> kIndexBits);
    float x[4];
    bool any = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool inside = column + i >= begin && column + i < end;
      x[i] = inside ? load_number(numbers + column + i) : -bits_float(0x7f800000u);
      const uint32_t order = order_of(x[i]);
      if (inside) {
        least = order < least ? order : least;
        greatest = order > greatest ? order : greatest;
      }
      any = any || (inside && order >= threshold);
    }
    if (!any) {
      return;
    }
    const Block words = draw_block(race.stream, static_cast<uint64_t>(block));
    const bool greedy = race.temperature == 0.0;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = words.word(static_cast<uint64_t>(i));
      const float value = i < 2 ? (i == 0 ? x[0] : x[1]) : (i == 2 ? x[2] : x[3]);
      const uint32_t token = static_cast<uint32_t>(4 * block + i);
      if (race.survives(value, token) && (greedy || bound.may_win(value, word))) {
        const Winner winner{race.score(value, token), static_cast<int64_t>(token)};
        best = winner.beats(best) ? winner : best;
      }
    }
  }
};

template <class T>
struct RaceParts {
  static constexpr int kMinBlocks = 2;
  NumberRows<T> numbers;
  RaceRows races;
  WinnersOut out;
  int64_t part_size;

  FS_DEVICE void operator()(ThreadIndex at) const {
    const int64_t warps = int64_t{at.blocks} * (kThreads / kLanes);
    const uint32_t lane = at.thread % kLanes;
    const int64_t all = numbers.rows * out.parts;
#pragma unroll 1
    for (int64_t i = (int64_t{at.block} * kThreads + at.thread) / kLanes; i < all; i += warps) {
      const Winner winner = run(i / out.parts, i % out.parts, lane);
#if defined(__CUDA_ARCH__)
      if (lane == 0) {
        out.scores[i] = winner.score;
        out.tokens[i] = winner.token;
      }
#else  // the threads run one after another
      const Winner before = lane == 0 ? Winner::none() : Winner{out.scores[i], out.tokens[i]};
      const Winner best = better(before, winner);
      out.scores[i] = best.score;
      out.tokens[i] = best.token;
#endif
    }
  }

  FS_DEVICE Winner run(int64_t row, int64_t part, uint32_t lane) const {
    const Race race = races.race(row);
    const int64_t begin = part * part_size;
    const int64_t end = begin + part_size < numbers.size ? begin + part_size : numbers.size;
    LaneRace<T> mine{race, numbers.row(row), numbers.first, begin, end};
    const int64_t first_block = (numbers.first + begin) / 4;
    const int64_t blocks = begin < end ? (numbers.first + end + 3) / 4 - first_block : 0;
    ScoreBound bound(race);
#pragma unroll 1
    for (int64_t turn = 0; turn * kLanes < blocks; ++turn) {
      const int64_t b = turn * kLanes + lane;
      if (b < blocks) {
        mine.try_block(first_block + b, bound);
      }
      if ((turn & (turn + 1)) == 0) {  // every lane hears of the best: turns 0, 1, 3, 7, ...
        const Winner best = best_of_warp(mine.best);
        if (best.token >= 0) {
          bound.raise(best.score);
        }
      }
    }
    const bool invalid = !is_temperature(race.temperature) ||
                         (mine.least <= mine.greatest && is_invalid(mine.least, mine.greatest));
    return best_of_warp(invalid ? Winner::invalid() : mine.best);
  }
};

// One digit of the thresholds: each block finds the digit before from the histogram of its row, and
// counts some columns of that row for the next one. Blocks of `digit` -1 count nothing: they have
// found the last digit.
template <class T>
struct SearchDigit {
  static constexpr int kMinBlocks = 4;
  static constexpr int kAhead = 8;  // loads of a thread at a time
  NumberRows<T> numbers;
  ThresholdRows rows;
  int64_t* scratch;  // for each row the histograms, and the Digits that each was counted with
  int64_t first_row;
  int64_t parts;  // blocks of a row
  int digit;

  FS_DEVICE void operator()(ThreadIndex at) const {
    const int64_t local = at.block / parts, part = at.block % parts, row = first_row + local;
    int64_t* bins = scratch + local * kThresholdScratch + digit * (kBins + 2);
    const Digits found =
        digit == kDigits - 1 ? Digits{0, 0} : next_digit(row, bins + kBins + 2, at.thread);
    const bool is_first = part == 0 && at.thread == 0;
    if (digit < 0) {
      if (is_first) {
        rows.out[row] = found.missing > 0 ? found.prefix : rows.floors[row];
      }
      return;
    }
    if (is_first) {
      bins[kBins] = found.prefix;
      bins[kBins + 1] = found.missing;
    }
    __shared__ SharedSums<kBins> sums;
    sums.clear(at.thread);
    const int64_t each = (numbers.size + parts - 1) / parts, begin = part * each;
    const int64_t end = begin + each < numbers.size ? begin + each : numbers.size;
    const CodeRange codes(rows.floors[row], found.prefix, digit);
#pragma unroll 1
    for (int64_t i = begin + at.thread; i < end; i += kAhead * kThreads) {
      float x[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        x[k] = i + k * kThreads < end ? load_number(numbers.row(row) + i + k * kThreads)
                                      : -bits_float(0x7f800000u);  // of no code that counts
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        count(row, i + k * kThreads, x[k], codes, sums);
      }
    }
    sums.add_to(bins, at.thread);
  }

  FS_DEVICE void count(int64_t row, int64_t column, float x, const CodeRange& codes,
                       SharedSums<kBins>& sums) const {
    const int64_t code = token_code(x, static_cast<uint32_t>(numbers.first + column));
    if (code >= codes.low && code < codes.high) {
      const int64_t value = rows.greatest == nullptr
                                ? 1
                                : token_mass(x, __ldg(rows.greatest + row), rows.temperatures[row]);
      if (value != 0) {
        sums.add(static_cast<int>(code >> (digit * kDigitBits)) & (kBins - 1),
                 static_cast<uint64_t>(value));
      }
    }
  }

  // The digit where what is missing ends, counted from the highest bin down.
  FS_DEVICE Digits next_digit(int64_t row, const int64_t* bins, uint32_t thread) const {
    __shared__ Digits found;
    const bool is_highest = digit + 1 == kDigits - 1;
    const int64_t prefix = bins[kBins] << kDigitBits;
    int64_t missing = bins[kBins + 1];
#if defined(__CUDA_ARCH__)
    constexpr int kEach = kBins / kThreads;
    __shared__ int64_t warps[kThreads / kLanes];
    const int64_t* mine = bins + kEach * thread;
    int64_t own = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      own += mine[i];
    }
    int64_t above = 0, together = own;  // of the lanes above, and of those known so far
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) {
      const int64_t other = __shfl_xor_sync(0xffffffffu, together, lanes);
      above += (thread & lanes) == 0 ? other : 0;
      together += other;
    }
    if (thread % kLanes == 0) {
      warps[thread / kLanes] = together;
    }
    if (thread == 0) {
      found = Digits{prefix, 0};
    }
    __syncthreads();
    int64_t total = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / kLanes; ++warp) {
      above += warp > static_cast<int>(thread / kLanes) ? warps[warp] : 0;
      total += warps[warp];
    }
    missing = is_highest ? rows.needed(row, total) : missing;
    if (above < missing && missing <= above + own) {
      missing -= above;
      int i = kEach - 1;
#pragma unroll 1
      for (; i > 0 && mine[i] < missing; --i) {
        missing -= mine[i];
      }
      found = Digits{prefix | (kEach * thread + i), missing};
    }
    __syncthreads();
#else  // the threads run one after another
    if (thread == 0) {
      int64_t total = 0, bin = kBins - 1;
      for (int64_t i = 0; i < kBins; ++i) {
        total += bins[i];
      }
      missing = is_highest ? rows.needed(row, total) : missing;
      for (; bin > 0 && bins[bin] < missing; --bin) {
        missing -= bins[bin];
      }
      found = Digits{prefix | bin, missing};
    }
#endif
    return found;
  }
};

}  // namespace

template <class T>
void launch_race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                 CudaStream cuda) {
  constexpr int64_t kWarps = kThreads / kLanes;
  const int64_t size = (numbers.size + out.parts - 1) / out.parts;
  launch(RaceParts<T>{numbers, races, out, size}, (numbers.rows * out.parts + kWarps - 1) / kWarps,
         "sampling_race", cuda);
}

template <class T>
void launch_threshold(const NumberRows<T>& numbers, const ThresholdRows& rows, int64_t* scratch,
                      CudaStream cuda) {
  constexpr int64_t kColumns = SearchDigit<T>::kAhead * kThreads;
  const char* op = "sampling_threshold";
  const int64_t most = (numbers.size + kColumns - 1) / kColumns;
  for (int64_t row = 0; row < numbers.rows; row += kThresholdRows) {
    const int64_t count = std::min(numbers.rows - row, kThresholdRows);
    const int64_t parts = resident_blocks<SearchDigit<T>>(op) / count;
    SearchDigit<T> search{
        numbers, rows, scratch, row, std::max(std::min(parts, most), int64_t{1}), kDigits - 1};
    check_cuda(cudaMemsetAsync(scratch, 0, static_cast<size_t>(8 * count * kThresholdScratch),
                               static_cast<cudaStream_t>(cuda.handle)),
               op);
    for (; search.digit >= 0; --search.digit) {
      launch_blocks(search, count * search.parts, op, cuda);
    }
    search.parts = 1;
    launch_blocks(search, count, op, cuda);
  }
}

#define FS_INSTANTIATE(T)                                                                 \
  template void launch_race<T>(const NumberRows<T>&, const RaceRows&, const WinnersOut&,  \
                               CudaStream);                                               \
  template void launch_threshold<T>(const NumberRows<T>&, const ThresholdRows&, int64_t*, \
                                    CudaStream);
FS_EACH_NUMBER(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
