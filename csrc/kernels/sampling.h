// Host entries of sampling: pointers, counts, no torch. See docs/spec/sampling.md.
#pragma once
#include <cstdint>

#include "../core/sampling.h"

namespace fastseed {

// Rows of logits; `stride` numbers lie between the beginnings of two rows.
template <class T>
struct NumberRows {
  const T* data;
  int64_t stride;
  int64_t rows;
  int64_t size;
  int64_t first;  // the token of the first column

  FS_HD const T* row(int64_t i) const {
    return data + i * stride;
  }
};

// A race in each row; all arrays have one entry a row.
struct RaceRows {
  const uint64_t* keys;  // two a row
  const int64_t* positions;
  const double* temperatures;
  const int64_t* thresholds;

  FS_HD Race race(int64_t row) const {
    const Key key{keys[2 * row], keys[2 * row + 1]};
    return Race{token_stream(key, static_cast<uint64_t>(positions[row])), temperatures[row],
                thresholds[row] > kLeastCode ? thresholds[row] : kLeastCode};
  }
};

// Winners of parts of rows, `parts` a row, of ceil(size / parts) tokens each.
struct WinnersOut {
  double* scores;
  int64_t* tokens;
  int64_t parts;
};

// Where codes begin to be too few: for each row the greatest code from which on there are as many
// codes as wanted, or that share of all masses. Codes below its floor do not count.
struct ThresholdRows {
  const int64_t* floors;
  const double* wanted;
  const float* greatest;  // null: counts instead of masses
  const double* temperatures;
  int64_t* out;  // the floor where nothing counts

  // How much of `total` has to lie from the threshold on.
  FS_HD int64_t needed(int64_t row, int64_t total) const {
    const double real = static_cast<double>(total);
    const double least = greatest == nullptr ? wanted[row] : mul(wanted[row], real);
    if (!(least < real)) {
      return total;
    }
    const int64_t whole = least < 1.0 ? 1 : static_cast<int64_t>(least);
    const int64_t needed = whole + (static_cast<double>(whole) < least ? 1 : 0);
    return needed < total ? needed : total;
  }
};

// The digits of a threshold are found from the highest one on, by histograms of those codes that
// begin with the digits before.
constexpr int kDigitBits = 12;
constexpr int64_t kBins = int64_t{1} << kDigitBits;
constexpr int kDigits = 5;

struct Digits {
  int64_t prefix;
  int64_t missing;  // of the codes that begin with it
};

// Codes [low, high) of a row, of finite numbers.
struct CodeRange {
  int64_t low, high;

  FS_HD CodeRange(int64_t floor, int64_t prefix, int digit) {
    const int shift = (digit + 1) * kDigitBits;
    const int64_t least = floor > kLeastCode ? floor : kLeastCode;
    const int64_t begin = static_cast<int64_t>(static_cast<uint64_t>(prefix) << shift);
    const int64_t end = static_cast<int64_t>(static_cast<uint64_t>(prefix + 1) << shift);
    low = begin > least ? begin : least;
    high = end < kEndCode ? end : kEndCode;
  }
};

// Winners begin to end - 1 of all rows * parts.
template <class T>
void launch_race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                 int64_t begin, int64_t end);

// Thresholds of rows begin to end - 1.
template <class T>
void launch_threshold(const NumberRows<T>& numbers, const ThresholdRows& rows, int64_t begin,
                      int64_t end);

// All of them, on a CUDA stream (a cudaStream_t). All pointers are the device's.
template <class T>
void launch_race_cuda(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                      void* cuda_stream);
// `scratch` has kThresholdScratch integers for each of at least kThresholdRows rows, or of all.
constexpr int64_t kThresholdScratch = kDigits * (kBins + 2);
constexpr int64_t kThresholdRows = 256;
template <class T>
void launch_threshold_cuda(const NumberRows<T>& numbers, const ThresholdRows& rows,
                           int64_t* scratch, void* cuda_stream);

#define FS_EACH_NUMBER(apply) apply(float) apply(Half) apply(BFloat16)

}  // namespace fastseed
