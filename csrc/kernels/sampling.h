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

// Which codes a histogram counts: those from `floors` on with these higher digits.
struct DigitRows {
  const int64_t* floors;
  const int64_t* prefixes;
  const float* greatest;  // null: counts instead of masses
  const double* temperatures;
  int digit;
};

constexpr int kDigitBits = 12;
constexpr int64_t kBins = int64_t{1} << kDigitBits;
constexpr int kDigits = 5;

// Codes [low, high) of a row, of finite numbers.
struct CodeRange {
  int64_t low, high;
};

FS_HD CodeRange code_range(const DigitRows& digits, int64_t row) {
  const int shift = (digits.digit + 1) * kDigitBits;
  const uint64_t prefix = static_cast<uint64_t>(digits.prefixes[row]);
  const int64_t low = static_cast<int64_t>(prefix << shift);
  const int64_t floor = digits.floors[row] > kLeastCode ? digits.floors[row] : kLeastCode;
  const int64_t high = static_cast<int64_t>((prefix + 1) << shift);
  return CodeRange{low > floor ? low : floor, high < kEndCode ? high : kEndCode};
}

// Winners begin to end - 1 of all rows * parts.
template <class T>
void launch_race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                 int64_t begin, int64_t end);

// Histograms of rows begin to end - 1: kBins numbers each, that are overwritten.
template <class T>
void launch_histogram(const NumberRows<T>& numbers, const DigitRows& digits, int64_t* out,
                      int64_t begin, int64_t end);

// All of them, on a CUDA stream (a cudaStream_t). All pointers are the device's.
template <class T>
void launch_race_cuda(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                      void* cuda_stream);
template <class T>
void launch_histogram_cuda(const NumberRows<T>& numbers, const DigitRows& digits, int64_t* out,
                           void* cuda_stream);

#define FS_EACH_NUMBER(apply) apply(float) apply(Half) apply(BFloat16)

}  // namespace fastseed
