// Included by test_cuda.cu. Rows of tests/vectors/draws.txt, answered by the device.
#pragma once
#include <sstream>
#include <string>

#include "../../csrc/cuda/draw.cuh"
#include "cuda_checks.h"

namespace {

using namespace fastseed;

// The columns of a row that have not been read; all of them have to be there, and no more.
class DrawRow {
 public:
  explicit DrawRow(std::istringstream& row) : row_(row) {}

  std::string text() {
    std::string field;
    check(static_cast<bool>(row_ >> field), "a column");
    return field;
  }
  int64_t decimal() {
    return std::stoll(text());
  }
  uint64_t unsigned_decimal() {
    return std::stoull(text());
  }
  uint64_t hex() {
    return std::stoull(text(), nullptr, 16);
  }
  template <class Real>
  Real real() {
    const uint64_t bits = hex();
    if constexpr (sizeof(Real) == 4) {
      return bits_float(static_cast<uint32_t>(bits));
    } else {
      Real x;
      std::memcpy(&x, &bits, sizeof(x));
      return x;
    }
  }

 private:
  std::istringstream& row_;
};

struct Place64 {  // of the values of a row
  Key key;
  int64_t position;
  int64_t first;
  int64_t count;
};

template <class D>
void check_values(const D& d, const Place64& at, DrawRow& row) {
  DeviceArray<uint64_t> keys(std::vector<uint64_t>{at.key.lo, at.key.hi});
  DeviceArray<int64_t> positions(std::vector<int64_t>{at.position});
  DeviceArray<typename D::Value> out(at.count);
  launch_draw(d, Streams{keys.data(), positions.data(), 1},
              Layout{at.count, 1, at.first, 0, {}, {}}, out.data(), CudaStream{});
  const typename D::Value* values = out.read();
  for (int64_t i = 0; i < at.count; ++i) {
    check(bits_of(values[i]) == row.hex(), "a value of a row");
  }
}

template <class T>
void check_reals_row(const std::string& name, const Place64& at, DrawRow& row, T one) {
  using Real = RealOf<T>;
  if (name == "uniform") {
    const Real span = row.real<Real>(), shift = row.real<Real>(), cap = row.real<Real>();
    check_values(Uniform<T>{span, shift, cap}, at, row);
  } else if (name == "normal") {
    const Real mean = row.real<Real>(), std = row.real<Real>();
    check_values(Normal<T>{mean, std}, at, row);
  } else if (name == "exponential") {
    check_values(Exponential<T>{row.real<Real>()}, at, row);
  } else if (name == "trunc_normal") {
    Real p[8];
    for (Real& parameter : p) {
      parameter = row.real<Real>();
    }
    check_values(TruncNormal<T>{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}, at, row);
  } else {
    check(name == "bernoulli", "the name of a distribution");
    check_values(Bernoulli<T>{row.unsigned_decimal(), T{}, one}, at, row);
  }
}

template <class T>
void check_narrow(const Place64& at, DrawRow& row, int64_t low, uint64_t range) {
  const uint32_t r = static_cast<uint32_t>(range);
  check_values(RandIntNarrow<T>{low, r, (0u - r) % r}, at, row);
}

void check_integers_row(const std::string& dtype, const Place64& at, DrawRow& row) {
  const int64_t low = row.decimal();
  const uint64_t range = row.unsigned_decimal();
  if (range >> 32 != 0) {
    check(dtype == "int64", "the dtype of a wide range");
    check_values(RandIntWide<int64_t>{low, range, (0 - range) % range}, at, row);
  } else if (dtype == "uint8") {
    check_narrow<uint8_t>(at, row, low, range);
  } else if (dtype == "int32") {
    check_narrow<int32_t>(at, row, low, range);
  } else {
    check(dtype == "int64", "the dtype of integers");
    check_narrow<int64_t>(at, row, low, range);
  }
}

inline void check_draw_row(std::istringstream& stream) {
  DrawRow row(stream);
  const std::string name = row.text(), dtype = row.text();
  Place64 at;
  at.key.lo = row.hex();
  at.key.hi = row.hex();
  at.position = row.decimal();
  at.first = row.decimal();
  at.count = row.decimal();
  if (name == "bits") {
    dtype == "uint32" ? check_values(Bits<uint32_t>{}, at, row)
                      : check_values(Bits<uint64_t>{}, at, row);
  } else if (name == "randint") {
    check_integers_row(dtype, at, row);
  } else if (dtype == "bool" || dtype == "uint8") {
    check(name == "bernoulli", "the distribution of booleans");
    check_values(Bernoulli<uint8_t>{row.unsigned_decimal(), 0, 1}, at, row);
  } else if (dtype == "float32") {
    check_reals_row(name, at, row, 1.0f);
  } else if (dtype == "float64") {
    check_reals_row(name, at, row, 1.0);
  } else if (dtype == "float16") {
    check_reals_row(name, at, row, Half{0x3c00});
  } else {
    check(dtype == "bfloat16", "a dtype");
    check_reals_row(name, at, row, BFloat16{0x3f80});
  }
  check(!(stream >> at.count), "the end of a row");
}

// The functions under the draws, as the device computes them.
struct RealFunctions {
  static constexpr int kMinBlocks = 1;
  uint64_t word;
  bool wide;
  uint64_t* out;  // negative_log, cos, sin

  FS_DEVICE void operator()(ThreadIndex at) const {
    if (at.block != 0 || at.thread != 0) {
      return;
    }
    if (wide) {
      write(negative_log(word), cos_sin(word));
    } else {
      const uint32_t w = static_cast<uint32_t>(word);
      write(negative_log(w), cos_sin(w));
    }
  }

 private:
  template <class T>
  FS_DEVICE void write(T negative_log, const CosSin<T>& angle) const {
    out[0] = bits_of(negative_log);
    out[1] = bits_of(angle.cos);
    out[2] = bits_of(angle.sin);
  }
};

inline void check_real_row(std::istringstream& stream) {
  DrawRow row(stream);
  const std::string function = row.text(), dtype = row.text();
  const uint64_t word = row.hex(), result = row.hex();
  const int which = function == "negative_log" ? 0 : function == "cos" ? 1 : 2;
  check(which < 2 || function == "sin", "the name of a function");
  DeviceArray<uint64_t> out(3);
  launch(RealFunctions{word, dtype == "float64", out.data()}, 1, "real", CudaStream{});
  check(out.read()[which] == result, "the result of a row");
}

}  // namespace
