// From a row of logits to a token: docs/spec/sampling.md is the specification; frozen like the
// derivation. A token is the winner of a race: of the surviving tokens, the one of greatest score.
#pragma once
#include <cstdint>

#include "draw.h"

namespace fastseed {

constexpr uint64_t kTokenTag = uint64_t{0x40} << 56;  // of the second counter word
constexpr int kIndexBits = 28;                        // of a code
constexpr int64_t kMaxTokens = int64_t{1} << 24;
constexpr int64_t kNoToken = -1;

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kLog2E = 0x1.71547652b82fep+0;

// The stream whose words are those of the tokens at a position.
FS_HD Key token_stream(Key key, uint64_t position) {
  const Block b = draw_block(key, position | kTokenTag);
  return Key{b.lo(), b.hi()};
}

// Word `token` of the stream, above word token + 2^34.
FS_HD uint64_t token_word(Key stream, uint32_t token) {
  const uint64_t block = token / 4;
  const uint32_t i = token % 4;
  const uint64_t high = draw_block(stream, block).word(i);
  return high << 32 | draw_block(stream, block | uint64_t{1} << 32).word(i);
}

// ln x of a normal x > 0.
FS_HD double natural_log(double x) {
  const uint64_t bits = bits_of(x);
  const double e = static_cast<double>(static_cast<int32_t>(bits >> 52) - 1022);
  const uint64_t fraction = (bits & 0xfffffffffffffu) | uint64_t{1} << 52;
  return add(mul(e, kLn2), -negative_log(fraction << 11));
}

FS_HD double token_noise(Key stream, uint32_t token) {
  return -natural_log(negative_log(token_word(stream, token)));
}

FS_HD bool is_temperature(double t) {
  return t == 0.0 || (t >= 0x1p-20 && t <= 0x1p20);
}

// A pattern that orders as the reals do; -0 is 0. NaN is below all of them, or above.
FS_HD uint32_t order_of(float x) {
  const uint32_t bits = bits_of(x) == 0x80000000u ? 0u : bits_of(x);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

constexpr uint32_t kLeastOrder = 0x00800000u;  // that of the least finite number
constexpr uint32_t kInfinityOrder = 0xff800000u;

// Of a row with logits of these orders: NaN or +infinity.
FS_HD bool is_invalid(uint32_t least, uint32_t greatest) {
  return least < kLeastOrder - 1 || greatest >= kInfinityOrder;
}

constexpr int64_t kLeastCode = int64_t{kLeastOrder} << kIndexBits;
constexpr int64_t kEndCode = int64_t{kInfinityOrder} << kIndexBits;

FS_HD int64_t token_code(float x, uint32_t token) {
  return static_cast<int64_t>(uint64_t{order_of(x)} << kIndexBits |
                              (((1u << kIndexBits) - 1) - token));
}

// round(2^38 exp((x - max) / t)); 0 of what is not finite. Written without branches and without
// conversions to integers, so that compilers turn a loop of it into vector code.
FS_HD int64_t token_mass(float x, float max, double t) {
  constexpr double kInverse[] = {0x1p+0,
                                 0x1p+0,
                                 0x1p-1,
                                 0x1.5555555555555p-3,
                                 0x1.5555555555555p-5,
                                 0x1.1111111111111p-7,
                                 0x1.6c16c16c16c17p-10,
                                 0x1.a01a01a01a01ap-13,
                                 0x1.a01a01a01a01ap-16,
                                 0x1.71de3a556c734p-19,
                                 0x1.27e4fb7789f5cp-22,
                                 0x1.ae64567f544e4p-26};
  constexpr double kRound = 0x1.8p52;  // the sum with it ends in the nearest integer
  const double y = divide(add(static_cast<double>(x), -static_cast<double>(max)), t);
  const double sum = add(mul(y, 0x1.71547652b82fep+0), kRound);
  const double n = add(sum, -kRound);
  const double r = add(add(y, -mul(n, 0x1.62e42fefa2000p-1)), -mul(n, 0x1.9ef35793c7673p-41));
  const uint64_t exponent = bits_of(sum) - bits_of(kRound) + (1023 + 38);
  const double mass = mul(polynomial(kInverse, r), bits_double(exponent << 52));
  const uint64_t rounded = bits_of(add(mass, 0x1p52)) & 0xfffffffffffffu;
  const uint64_t greedy = x == max ? uint64_t{1} << 38 : 0;
  return static_cast<int64_t>(t == 0.0 ? greedy : y >= -27.0 ? rounded : 0);
}

// A token and its score; none is the start, and loses against every other.
struct Winner {
  double score;
  int64_t token;

  FS_HD static Winner none() {
    return Winner{-bits_double(0x7ff0000000000000u), kNoToken};
  }
  // NaN: of a row that has no token whatever else it holds.
  FS_HD static Winner invalid() {
    return Winner{bits_double(0x7ff8000000000000u), kNoToken};
  }
  FS_HD bool is_invalid() const {
    return score != score;
  }
  FS_HD bool beats(const Winner& other) const {
    return score > other.score || (score == other.score && token < other.token && token >= 0);
  }
};

// One row of a race: what its tokens' scores are made of.
struct Race {
  Key stream;
  double temperature;
  int64_t threshold;  // the least code that survives

  FS_HD bool survives(float x, uint32_t token) const {
    return token_code(x, token) >= threshold;
  }

  // Of a survivor.
  FS_HD double score(float x, uint32_t token) const {
    const double value = static_cast<double>(x);
    return temperature == 0.0 ? add(value, 0.0)  // -0 becomes 0
                              : add(divide(value, temperature), token_noise(stream, token));
  }
};

// Could a token have the score `best` or more? From its logit and the upper half of its word, with
// few operations in float32, so that few tokens need their score; no bit of a winner depends on it.
//
// The noise of a token is -ln E, of E >= 1 - u. So a logit x cannot win where 1 - u is above
// 2^(x slope + shift), which is exp(x / temperature - best) from above, with room for rounding.
struct ScoreBound {
  // Before there is a score any token may win.
  FS_HD explicit ScoreBound(const Race& race)
      : inverse_(static_cast<float>(divide(kLog2E, race.temperature))) {}

  FS_HD void raise(double best) {
    const double exact = mul(-best, kLog2E);
    const double size = exact < 0.0 ? -exact : exact;
    const double power = add(exact, add(0x1p-10, mul(add(size, 256.0), 0x1p-20)));
    const bool any = !(size < 1e30);
    slope_ = any ? 0.0f : inverse_;
    shift_ = any ? kAny : static_cast<float>(power);
  }

  FS_HD bool may_win(float x, uint32_t word) const {
    return distance(word) <= power_of_two(add(mul(x, slope_), shift_));
  }

 private:
  static constexpr float kAny = 100.0f;  // 2^100 is above every distance
  float inverse_;                        // log2(e) / temperature
  float slope_ = 0.0f, shift_ = kAny;

  // 2^power from above, below 2^100: 2^(e + f) is below 2^e (1 + f), whose pattern the sum becomes.
  FS_HD static float power_of_two(float power) {
    power = power > -126.0f ? power : -126.0f;
    power = power < 100.0f ? power : 100.0f;
    return bits_float(
        static_cast<uint32_t>(static_cast<int32_t>(mul(add(power, 127.0f), 0x1p23f))));
  }
  // 1 - u from below: 31 bits, which convert as a signed number.
  FS_HD static float distance(uint32_t word) {
    return mul(static_cast<float>(static_cast<int32_t>(~word >> 1)), 0x1p-31f);
  }
};

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

// The winners of all rows * parts.
template <class T>
void launch_race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                 Range part);
template <class T>
void launch_race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                 CudaStream cuda);

// The thresholds of all rows. On a device `scratch` has kThresholdScratch integers for each of at
// least kThresholdRows rows, or of all.
constexpr int64_t kThresholdScratch = kDigits * (kBins + 2);
constexpr int64_t kThresholdRows = 256;
template <class T>
void launch_threshold(const NumberRows<T>& numbers, const ThresholdRows& rows, int64_t* scratch,
                      Range part);
template <class T>
void launch_threshold(const NumberRows<T>& numbers, const ThresholdRows& rows, int64_t* scratch,
                      CudaStream cuda);

#define FS_EACH_NUMBER(apply) apply(float) apply(Half) apply(BFloat16)

}  // namespace fastseed
