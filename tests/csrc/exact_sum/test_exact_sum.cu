// Exact sums on the CPU and by the CUDA kernels, against the core and the known answers, without
// torch.
//
//   test_exact_sum exact_sum.txt     prints "N rows, M checks passed on: paths", or what fails
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "../../../csrc/core/derive.h"
#include "../../../csrc/core/exact_sum.h"
#include "../cuda_checks.h"

namespace {

using namespace fastseed;

using Total = std::vector<int64_t>;

double wide(double x) {
  return x;
}
template <class T>
double wide(T x) {
  return static_cast<double>(to_float(x));
}

// Value by value. `terms` is '-' for values, '=' for squares, else for products.
template <class T>
Total by_the_core(const std::vector<T>& values, const std::vector<T>& factors, char terms) {
  Total total(kExactSize);
  const auto add = [&](int limb, int64_t part) { total[static_cast<size_t>(limb)] += part; };
  for (size_t i = 0; i < values.size(); ++i) {
    if (terms == '-') {
      add_exactly(wide(values[i]), add);
    } else {
      add_product_exactly(wide(values[i]), wide(terms == '=' ? values[i] : factors[i]), add);
    }
  }
  carry_exact(total.data());
  total[kExactCount] = static_cast<int64_t>(values.size());
  return total;
}

// The numbers in 40 parts: more than one launch of a device takes.
template <class T>
std::vector<ExactPart<T>> parts_of(const T* values, const T* factors, int64_t n) {
  constexpr int64_t kParts = 40;
  std::vector<ExactPart<T>> parts;
  for (int64_t i = 0; i < kParts; ++i) {
    const int64_t at = i * n / kParts;
    parts.push_back(
        {values + at, factors == nullptr ? nullptr : factors + at, (i + 1) * n / kParts - at});
  }
  return parts;
}

template <class T>
void check_all(const std::vector<T>& values, const std::vector<T>& factors, char terms,
               const Total& expected) {
  const int64_t n = static_cast<int64_t>(values.size());
  const auto others = [&](const T* numbers, const T* given) {
    return terms == '-' ? nullptr : terms == '=' ? numbers : given;
  };
  for (const std::string& path : simd_paths()) {
    set_simd_path(path);
    Total total(kExactSize);
    const T* second = others(values.data(), factors.data());
    const auto parts = parts_of(values.data(), second, n);
    launch_exact_sum(parts, total.data(), Range{0, n / 3});
    launch_exact_sum(parts, total.data(), Range{n / 3, n});
    carry_exact(total.data());
    check(total == expected, ("the sum on " + path).c_str());
  }
  for (const int multiprocessors : {1, 3}) {
    set_multiprocessors(multiprocessors);
    DeviceArray<T> from(values, multiprocessors), by(factors, 1);
    DeviceArray<int64_t> total(Total(kExactSize), 1);
    const T* second = others(from.data(), by.data());
    launch_exact_sum(parts_of(from.data(), second, n), total.data(), CudaStream{});
    const int64_t* found = total.read();
    check(Total(found, found + kExactSize) == expected, "the sum by the CUDA kernel");
  }
}

template <class T>
T value_of(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(value));  // the lowest bytes stand first
  return value;
}

template <class T>
constexpr int kFraction = 10;
template <>
constexpr int kFraction<float> = 23;
template <>
constexpr int kFraction<double> = 52;
template <>
constexpr int kFraction<BFloat16> = 7;

// Numbers of 2^spread binades around 1, or, beyond what the exponent holds, any patterns; of a
// negative spread the least ones.
template <class T>
std::vector<T> made(int64_t n, int spread, uint64_t state) {
  constexpr int kBits = 8 * sizeof(T), kExponent = kBits - 1 - kFraction<T>;
  const bool any = spread >= kExponent;
  const int width = any ? kBits : kFraction<T> + std::min(std::abs(spread), kExponent - 1);
  const uint64_t one = ((uint64_t{1} << (kExponent - 1)) - 1) << kFraction<T>;
  const uint64_t least = any || spread < 0 ? 0 : one - (uint64_t{1} << (width - 1));
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t sign = any ? 0 : (state >> 8 & 1) << (kBits - 1);
    values.push_back(value_of<T>((least + (state >> (64 - width))) | sign));
  }
  return values;
}

template <class T>
void check_sizes() {
  for (const int64_t n : {0, 1, 63, 64, 65, 1023, 1025, 4096, 4097, 20011}) {
    for (const int spread : {1, 3, 5, 20, -6}) {
      where = std::to_string(sizeof(T)) + " bytes, " + std::to_string(n) + " values, spread " +
              std::to_string(spread);
      const std::vector<T> values = made<T>(n, spread, 1), factors = made<T>(n, spread / 2, 2);
      for (const char terms : {'-', '=', '*'}) {
        check_all(values, factors, terms, by_the_core(values, factors, terms));
      }
    }
  }
}

// ---------------------------------------------------------------- the known answers

template <class T>
std::vector<T> values_of(const std::string& text) {
  std::vector<T> found;
  std::istringstream in(text);
  for (std::string word; text != "-" && std::getline(in, word, ',');) {
    if (word.size() != 2 * sizeof(T)) {
      fail("a pattern of another width");
    }
    found.push_back(value_of<T>(std::stoull(word, nullptr, 16)));
  }
  return found;
}

// digits * 2^exponent, in limbs.
Total number_of(const std::string& digits, int exponent) {
  Total total(kExactSize);
  const bool negative = digits[0] == '-';
  const auto add = [&](int limb, int64_t part) { total[static_cast<size_t>(limb)] += part; };
  for (size_t i = negative ? 1 : 0; i < digits.size(); ++i) {
    const int64_t digit = std::stoll(digits.substr(i, 1), nullptr, 16);
    const int place = 4 * static_cast<int>(digits.size() - 1 - i);
    add_scaled(negative ? -digit : digit, exponent + place, add);
  }
  carry_exact(total.data());
  return total;
}

template <class T>
void check_sum(std::istringstream& in) {
  std::string values, factors, digits;
  int exponent;
  in >> values >> factors >> digits >> exponent;
  Total expected = number_of(digits, exponent);
  in >> expected[kExactNan] >> expected[kExactPositiveInfinity] >> expected[kExactNegativeInfinity];
  if (!in || !(in >> std::ws).eof()) {
    fail("a row of another shape");
  }
  const std::vector<T> numbers = values_of<T>(values);
  expected[kExactCount] = static_cast<int64_t>(numbers.size());
  const bool products = factors != "-" && factors != "=";
  check_all(numbers, products ? values_of<T>(factors) : numbers, products ? '*' : factors[0],
            expected);
}

void check_row(const std::string& line) {
  std::istringstream in(line);
  std::string kind, dtype;
  in >> kind >> dtype;
  if (kind == "mean" || kind == "root") {
    ++checks_passed;  // of Python's integers
  } else if (kind != "sum") {
    fail("an unknown kind of row");
  } else if (dtype == "float32") {
    check_sum<float>(in);
  } else if (dtype == "float64") {
    check_sum<double>(in);
  } else if (dtype == "float16") {
    check_sum<Half>(in);
  } else if (dtype == "bfloat16") {
    check_sum<BFloat16>(in);
  } else {
    fail("an unknown dtype");
  }
}

// Products and squares in one call: the CPU's sum and the kernel's.
void check_mixed() {
  where = "products and squares";
  set_multiprocessors(2);
  const std::vector<float> a{1.5f, -3e9f, 7e-20f}, b{2.0f, 0.25f, 1e30f};
  DeviceArray<float> x(a), y(b);
  DeviceArray<int64_t> by_kernel(Total(kExactSize), 1);
  Total total(kExactSize);
  for (const Range part : {Range{0, 2}, Range{2, 6}}) {
    launch_exact_sum<float>({{a.data(), b.data(), 3}, {b.data(), b.data(), 3}}, total.data(), part);
  }
  carry_exact(total.data());
  launch_exact_sum<float>({{x.data(), y.data(), 3}, {y.data(), y.data(), 3}}, by_kernel.data(),
                          CudaStream{});
  const int64_t* found = by_kernel.read();
  check(Total(found, found + kExactSize) == total, "the sum by the CUDA kernel");
}

}  // namespace

int main(int count, char** arguments) {
  std::ifstream file(count > 1 ? arguments[1] : "");
  int64_t rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') {
      where = line.substr(0, 200);
      check_row(line);
      ++rows;
    }
  }
  if (rows == 0) {
    fail("no row of a file was read");
  }
  check_sizes<float>();
  check_sizes<double>();
  check_sizes<Half>();
  check_sizes<BFloat16>();
  check_mixed();
  std::string paths;
  for (const std::string& path : simd_paths()) {
    paths += " " + path;
  }
  std::printf("%lld rows, %lld checks passed on:%s\n", static_cast<long long>(rows),
              static_cast<long long>(checks_passed), paths.c_str());
  return 0;
}
