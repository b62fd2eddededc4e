// Races and thresholds on the CPU and by the CUDA kernels, against the core and the known answers,
// without torch.
//
//   test_sampling sampling.txt     prints "N rows, M checks passed on: paths", or what fails
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <fstream>
#include <limits>
#include <type_traits>

#include "../../../csrc/core/derive.h"
#include "../../../csrc/core/sampling.h"
#include "../cuda_checks.h"
#include "../fields.h"

namespace {

using namespace fastseed;

// One row of numbers with what a race needs.
template <class T>
struct Case {
  std::vector<T> numbers;
  int64_t first;
  Key key;
  int64_t position, threshold;
  double temperature;
};

// Every token by itself.
template <class T>
Winner by_the_core(const Case<T>& c) {
  const Race race{token_stream(c.key, static_cast<uint64_t>(c.position)), c.temperature,
                  c.threshold > kLeastCode ? c.threshold : kLeastCode};
  Winner best = Winner::none();
  for (size_t i = 0; i < c.numbers.size(); ++i) {
    const float x = to_float(c.numbers[i]);
    const uint32_t order = order_of(x), token = static_cast<uint32_t>(c.first) + uint32_t(i);
    if (is_invalid(order, order)) {
      return Winner::invalid();
    }
    if (race.survives(x, token)) {
      const Winner winner{race.score(x, token), token};
      best = winner.beats(best) ? winner : best;
    }
  }
  return is_temperature(c.temperature) ? best : Winner::invalid();
}

bool same(const Winner& a, const Winner& b) {
  return a.token == b.token &&
         (bits_of(a.score) == bits_of(b.score) || (a.is_invalid() && b.is_invalid()));
}

template <class T>
struct Arguments {
  NumberRows<T> numbers;
  RaceRows races;

  Arguments(const Case<T>& c, const T* data, const uint64_t* keys, const int64_t* position,
            const double* temperature, const int64_t* threshold)
      : numbers{data, 0, 1, static_cast<int64_t>(c.numbers.size()), c.first},
        races{keys, position, temperature, threshold} {}
};

Winner merged(const double* scores, const int64_t* tokens, int64_t parts) {
  Winner best = Winner::none();
  for (int64_t i = 0; i < parts; ++i) {
    const Winner next{scores[i], tokens[i]};
    if (next.is_invalid()) {
      return next;
    }
    best = next.beats(best) ? next : best;
  }
  return best;
}

template <class T>
Winner on_the_cpu(const Case<T>& c, int64_t parts) {
  const uint64_t keys[2] = {c.key.lo, c.key.hi};
  const Arguments<T> a(c, c.numbers.data(), keys, &c.position, &c.temperature, &c.threshold);
  std::vector<double> scores(static_cast<size_t>(parts));
  std::vector<int64_t> tokens(static_cast<size_t>(parts));
  const WinnersOut out{scores.data(), tokens.data(), parts};
  launch_race(a.numbers, a.races, out, Range{0, parts / 2});
  launch_race(a.numbers, a.races, out, Range{parts / 2, parts});
  return merged(scores.data(), tokens.data(), parts);
}

template <class T>
Winner by_the_kernel(const Case<T>& c, int64_t parts) {
  DeviceArray<T> numbers(c.numbers, 1);
  DeviceArray<uint64_t> keys(std::vector<uint64_t>{c.key.lo, c.key.hi});
  DeviceArray<int64_t> position(std::vector<int64_t>{c.position});
  DeviceArray<double> temperature(std::vector<double>{c.temperature});
  DeviceArray<int64_t> threshold(std::vector<int64_t>{c.threshold});
  const Arguments<T> a(c, numbers.data(), keys.data(), position.data(), temperature.data(),
                       threshold.data());
  DeviceArray<double> scores(parts);
  DeviceArray<int64_t> tokens(parts);
  launch_race(a.numbers, a.races, WinnersOut{scores.data(), tokens.data(), parts}, CudaStream{});
  return merged(scores.read(), tokens.read(), parts);
}

template <class T>
void check_race(const Case<T>& c, const Winner& expected) {
  check(same(by_the_core(c), expected), "the core's winner");
  for (const int64_t parts : {1, 3}) {
    for (const std::string& path : simd_paths()) {
      set_simd_path(path);
      check(same(on_the_cpu(c, parts), expected), ("the winner on " + path).c_str());
    }
    for (const int multiprocessors : {1, 3}) {
      set_multiprocessors(multiprocessors);
      check(same(by_the_kernel(c, parts), expected), "the kernel's winner");
    }
  }
}

// The code from which on there are as many codes as wanted, or that share of the masses.
template <class T>
void check_threshold(const Case<T>& c, double wanted, bool masses) {
  float greatest = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<int64_t, int64_t>> codes;
  for (const T& number : c.numbers) {
    greatest = to_float(number) > greatest ? to_float(number) : greatest;
  }
  int64_t total = 0;
  for (size_t i = 0; i < c.numbers.size(); ++i) {
    const float x = to_float(c.numbers[i]);
    const int64_t code = token_code(x, static_cast<uint32_t>(c.first) + uint32_t(i));
    if (code >= std::max(c.threshold, kLeastCode) && code < kEndCode) {
      codes.emplace_back(code, masses ? token_mass(x, greatest, c.temperature) : 1);
      total += codes.back().second;
    }
  }
  std::sort(codes.rbegin(), codes.rend());
  const double least = masses ? std::ceil(wanted * static_cast<double>(total)) : wanted;
  const auto needed = static_cast<int64_t>(std::min(std::max(least, 1.0), double(total)));
  int64_t expected = c.threshold, sum = 0;
  for (size_t i = 0; total > 0 && sum < needed; ++i) {
    expected = codes[i].first;
    sum += codes[i].second;
  }
  const NumberRows<T> rows{c.numbers.data(), 0, 2, static_cast<int64_t>(c.numbers.size()), c.first};
  const std::vector<int64_t> floors(2, c.threshold), both(2, expected);
  const std::vector<double> shares(2, wanted), heats(2, c.temperature);
  const std::vector<float> maxima(2, greatest);
  for (const std::string& path : simd_paths()) {
    set_simd_path(path);
    std::vector<int64_t> found(2, -1);
    launch_threshold(rows,
                     ThresholdRows{floors.data(), shares.data(), masses ? maxima.data() : nullptr,
                                   heats.data(), found.data()},
                     nullptr, Range{0, 2});
    check(found == both, ("the threshold on " + path).c_str());
  }
  for (const int multiprocessors : {1, 3}) {
    set_multiprocessors(multiprocessors);
    DeviceArray<T> numbers(c.numbers, 1);
    DeviceArray<int64_t> floor(floors), out(2), scratch(2 * kThresholdScratch);
    DeviceArray<float> most(maxima);
    DeviceArray<double> share(shares), temperature(heats);
    launch_threshold(NumberRows<T>{numbers.data(), 0, 2, rows.size, c.first},
                     ThresholdRows{floor.data(), share.data(), masses ? most.data() : nullptr,
                                   temperature.data(), out.data()},
                     scratch.data(), CudaStream{});
    const int64_t* found = out.read();
    check(std::vector<int64_t>(found, found + 2) == both, "the kernels' threshold");
  }
}

float real32(const std::string& text) {
  return bits_float(static_cast<uint32_t>(hex(text)));
}

Case<float> read_place(Fields& f) {
  Case<float> c{};
  c.key.lo = hex(f.next());
  c.key.hi = hex(f.next());
  c.position = f.number();
  return c;
}

void read_numbers(Fields& f, Case<float>& c) {
  c.first = f.number();
  const int64_t n = f.number();
  for (int64_t i = 0; i < n; ++i) {
    c.numbers.push_back(real32(f.next()));
  }
}

void check_row(Fields& f) {
  const std::string kind = f.next();
  if (kind == "noise") {
    const Case<float> c = read_place(f);
    const Key stream = token_stream(c.key, static_cast<uint64_t>(c.position));
    const uint32_t token = static_cast<uint32_t>(f.number());
    check(token_word(stream, token) == hex(f.next()), "the word of a token");
    check(bits_of(token_noise(stream, token)) == hex(f.next()), "the noise of a token");
  } else if (kind == "mass") {
    const float x = real32(f.next()), greatest = real32(f.next());
    const double t = bits_double(hex(f.next()));
    check(token_mass(x, greatest, t) == f.number(), "the mass of a token");
  } else if (kind == "race") {
    Case<float> c = read_place(f);
    c.temperature = bits_double(hex(f.next()));
    c.threshold = f.number();
    read_numbers(f, c);
    const int64_t token = f.number();
    check_race(c, Winner{bits_double(hex(f.next())), token});
  } else if (kind == "threshold") {
    Case<float> c{};
    c.temperature = bits_double(hex(f.next()));
    for (int i = 0; i < 3; ++i) {
      (void)f.next();
    }
    read_numbers(f, c);
    (void)f.number();
    for (const double wanted : {1.0, 3.0, 1e9}) {
      check_threshold(c, wanted, false);
      check_threshold(c, 0.3 * wanted, true);
    }
  } else {
    fail("a row of an unknown kind");
  }
  std::string rest;
  check(!(f.in >> rest), "no further column");
}

int check_rows(const char* file) {
  std::ifstream in(file);
  int rows = 0;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') {
      where = line.substr(0, 200);
      Fields fields(line);
      check_row(fields);
      ++rows;
    }
  }
  if (rows == 0) {
    fail("no rows");
  }
  return rows;
}

Half narrowed(float x, Half) {
  return to_half(x);
}
BFloat16 narrowed(float x, BFloat16) {
  return to_bfloat16(x);
}
float narrowed(float x, float) {
  return x;
}

// Where a share ends between two tokens of equal mass, and where nothing counts.
void check_ends() {
  where = "ends";
  Case<float> c{{1.0f, 1.0f, 1.0f, 1.0f}, 0, Key{1, 2}, 0, 0, 1.0};
  for (const double above : {-0x1p-41, 0.0, 0x1p-41}) {
    check_threshold(c, 0.25 + above, true);
  }
  for (const int64_t floor : {kEndCode, token_code(1.0f, 2)}) {
    c.threshold = floor;
    check_threshold(c, 0.25, true);
    check_threshold(c, 1.0, false);
  }
}

// Sizes around those of groups, chunks and warps, with ends that a bound must not miss.
template <class T>
void check_shapes() {
  uint64_t state = 1;
  const auto next = [&state] { return (state = philox4x32(state, Block{{1, 2, 3, 4}}).lo()); };
  for (const int64_t n : {1, 3, 4, 63, 65, 130, 2047, 2050, 4099}) {
    for (int variant = 0; variant < 8; ++variant) {
      where = "size " + std::to_string(n) + ", variant " + std::to_string(variant);
      Case<T> c{};
      c.first = variant % 3 == 0 ? 0 : variant % 3 == 1 ? 5 : kMaxTokens - n;
      c.key = Key{next(), next()};
      c.position = static_cast<int64_t>(next() >> 8);
      c.temperature = variant == 2 ? 0.0 : variant == 3 ? 3.0 : 1.0;
      for (int64_t i = 0; i < n; ++i) {
        const float u = unit(static_cast<uint32_t>(next()));
        const float scale = variant == 1 ? 0.01f : variant == 7 ? 1e-6f : 10.0f;
        c.numbers.push_back(
            narrowed(variant == 5 ? static_cast<float>(i) * 0.01f : u * scale, T{}));
      }
      c.threshold = variant == 4 ? token_code(5.0f, 0) : 0;
      check_race(c, by_the_core(c));
      check_threshold(c, variant % 2 == 0 ? 0.1 * variant : double(variant * variant * 80),
                      variant % 2 == 0);
      for (const float bad : {bits_float(0x7f800000u), bits_float(0x7fc00000u),
                              bits_float(0xffc00000u), bits_float(0xff800000u)}) {
        if (n == 130 && variant < 2) {
          Case<T> with = c;
          with.numbers[77] = std::is_same_v<T, float> ? narrowed(bad, T{})
                                                      : narrowed(bits_float(0x7f800000u), T{});
          check_race(with, by_the_core(with));
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  where = "the command line";
  if (argc != 2) {
    fail("one argument is needed: sampling.txt");
  }
  const int rows = check_rows(argv[1]);
  check_ends();
  check_shapes<float>();
  check_shapes<Half>();
  check_shapes<BFloat16>();
  std::string paths;
  for (const std::string& path : simd_paths()) {
    paths += " " + path;
  }
  std::printf("%d rows, %" PRId64 " checks passed on:%s\n", rows, checks_passed, paths.c_str());
  return 0;
}
