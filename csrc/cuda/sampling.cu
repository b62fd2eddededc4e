// Sampling on CUDA devices: races of parts of rows, a warp each, and histograms of codes.
//
// As on the CPU, few tokens need their exact score: the upper half of a token's word says whether
// it may beat the best so far. Which tokens are tried changes no bit of the winner.
#include "../kernels/sampling.h"
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
  Winner best;
  uint32_t least, greatest;  // orders

  FS_DEVICE LaneRace(const Race& of, const T* row, int64_t token, int64_t from, int64_t to)
      : race(of),
        numbers(row),
        first(token),
        begin(from),
        end(to),
        best(Winner::none()),
        least(0xffffffffu),
        greatest(0) {}

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
      const uint32_t word =
          i < 2 ? (i == 0 ? words.w[0] : words.w[1]) : (i == 2 ? words.w[2] : words.w[3]);
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
    LaneRace<T> mine(race, numbers.row(row), numbers.first, begin, end);
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

template <class T>
struct CountDigits {
  static constexpr int kMinBlocks = 4;
  NumberRows<T> numbers;
  DigitRows digits;
  int64_t tiles;  // of kThreads columns, in a row
  int64_t* bins;

  FS_DEVICE void operator()(ThreadIndex at) const {
    const int64_t all = numbers.rows * tiles;
#pragma unroll 1
    for (int64_t tile = at.block; tile < all; tile += at.blocks) {
      const int64_t row = tile / tiles;
      const int64_t column = tile % tiles * kThreads + at.thread;
      if (column < numbers.size) {
        count(row, column);
      }
    }
  }

  FS_DEVICE void count(int64_t row, int64_t column) const {
    const CodeRange codes = code_range(digits, row);
    const float x = load_number(numbers.row(row) + column);
    const int64_t code = token_code(x, static_cast<uint32_t>(numbers.first + column));
    if (code < codes.low || code >= codes.high) {
      return;
    }
    const int64_t value = digits.greatest == nullptr ? 1
                                                     : token_mass(x, __ldg(digits.greatest + row),
                                                                  digits.temperatures[row]);
    const int64_t bin = code >> (digits.digit * kDigitBits) & (kBins - 1);
    atomicAdd(reinterpret_cast<unsigned long long*>(bins + row * kBins + bin),
              static_cast<unsigned long long>(value));
  }
};

}  // namespace

template <class T>
void launch_race_cuda(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                      void* cuda_stream) {
  constexpr int64_t kWarps = kThreads / kLanes;
  const int64_t size = (numbers.size + out.parts - 1) / out.parts;
  launch(RaceParts<T>{numbers, races, out, size}, (numbers.rows * out.parts + kWarps - 1) / kWarps,
         "sampling_race", cuda_stream);
}

template <class T>
void launch_histogram_cuda(const NumberRows<T>& numbers, const DigitRows& digits, int64_t* out,
                           void* cuda_stream) {
  if (numbers.rows == 0) {
    return;
  }
  const size_t bytes = static_cast<size_t>(numbers.rows * kBins) * sizeof(int64_t);
  check_cuda(cudaMemsetAsync(out, 0, bytes, static_cast<cudaStream_t>(cuda_stream)),
             "sampling_histogram");
  const int64_t tiles = (numbers.size + kThreads - 1) / kThreads;
  launch(CountDigits<T>{numbers, digits, tiles, out}, numbers.rows * tiles, "sampling_histogram",
         cuda_stream);
}

#define FS_INSTANTIATE(T)                                                                     \
  template void launch_race_cuda<T>(const NumberRows<T>&, const RaceRows&, const WinnersOut&, \
                                    void*);                                                   \
  template void launch_histogram_cuda<T>(const NumberRows<T>&, const DigitRows&, int64_t*, void*);
FS_EACH_NUMBER(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
