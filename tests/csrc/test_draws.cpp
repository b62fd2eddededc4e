// The draws on the CPU against the functions of csrc/core, one value at a time: every distribution,
// every instruction set, layouts, sizes, splits and addresses that do not fit.
#include <cstring>

#include "../../csrc/core/derive.h"
#include "../../csrc/core/draw.h"
#include "check.h"

namespace {

using namespace fastseed;

constexpr int64_t kFarPosition = (int64_t{1} << 34) - 6;  // words; its blocks cross 2^32

struct Source {
  std::vector<uint64_t> keys;
  std::vector<int64_t> positions;

  explicit Source(int64_t rows) {
    for (int64_t r = 0; r < rows; ++r) {
      const Key key = stream_key(Stream{{77, 5}, 3, 9}, static_cast<uint64_t>(r));
      keys.insert(keys.end(), {key.lo, key.hi});
      positions.push_back(r % 3 == 1 ? kFarPosition : 5 * r);
    }
  }
};

template <class D>
typename D::Value value_of(const D& d, const Source& s, int64_t row, int64_t index) {
  constexpr int64_t kEach = 4 / D::kWords;
  const size_t r = static_cast<size_t>(row);
  const Key key{s.keys[2 * r], s.keys[2 * r + 1]};
  const uint64_t block =
      first_block(static_cast<uint64_t>(s.positions[r])) + static_cast<uint64_t>(index / kEach);
  typename D::Value values[kEach];
  d(Drawn{draw_block(key, block), key, block}, values);
  return values[index % kEach];
}

// The output in parts that end at `cuts`, into memory whose margins must stay unchanged.
template <class D>
void check_draw(const D& d, int64_t rows, const Layout& layout, int shift,
                const std::vector<int64_t>& cuts) {
  using Value = typename D::Value;
  const Source s(rows);
  const Streams streams{s.keys.data(), s.positions.data(), rows};
  const int64_t total = rows * layout.runs * layout.length;
  constexpr int64_t kBytes = static_cast<int64_t>(sizeof(Value));
  Poisoned<uint8_t> memory(total * kBytes, shift * static_cast<int>(kBytes));
  Value* out = reinterpret_cast<Value*>(memory.data());
  int64_t begin = 0;
  for (const int64_t cut : cuts) {
    const int64_t end = cut * total / 100;
    launch_draw(d, streams, layout, out, Range{begin, end});
    begin = end;
  }
  launch_draw(d, streams, layout, out, Range{begin, total});
  memory.check_margins();
  const Value* got = out;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t run = 0; run < layout.runs; ++run) {
      for (int64_t i = 0; i < layout.length; ++i, ++got) {
        const Value want = value_of(d, s, row, layout.start(run) + i);
        check(std::memcmp(got, &want, sizeof(want)) == 0, "a value differs from the core's");
      }
    }
  }
}

Layout line(int64_t length, int64_t offset) {
  Layout layout{};
  layout.length = length;
  layout.runs = 1;
  layout.offset = offset;
  return layout;
}

// A part of a logical tensor of shape (9, 7, 30): 4 x 3 runs of `length`.
Layout part(int64_t length, int64_t offset) {
  Layout layout = line(length, offset);
  layout.runs = 12;
  layout.dims = 2;
  layout.sizes[0] = 4;
  layout.strides[0] = 210;
  layout.sizes[1] = 3;
  layout.strides[1] = 30;
  return layout;
}

template <class D>
void check_distribution(const D& d, const std::string& path) {
  where = path + ", words " + std::to_string(D::kWords) + ", bytes " +
          std::to_string(sizeof(typename D::Value));
  for (const int64_t length : {1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 64, 100}) {
    for (const int64_t rows : {1, 2, 3, 65, 130}) {
      check_draw(d, rows, line(length, 0), static_cast<int>(length % 3), {});
    }
    check_draw(d, 5, line(length, 3), 1, {13, 50, 51});
    check_draw(d, 67, line(length, 8), 0, {1, 33, 98});
    check_draw(d, 2, part(length < 30 ? length : 30, 31), 1, {40});
  }
  check_draw(d, 1, line(4097, 0), 1, {});
  check_draw(d, 2, line(5000, 1), 0, {7, 77});
  check_draw(d, 0, line(3, 0), 0, {});
}

template <template <class> class D, class... Parameters>
void check_reals(const std::string& path, Parameters... parameters) {
  check_distribution(D<float>{static_cast<float>(parameters)...}, path);
  check_distribution(D<double>{parameters...}, path);
  check_distribution(D<Half>{static_cast<float>(parameters)...}, path);
  check_distribution(D<BFloat16>{static_cast<float>(parameters)...}, path);
}

template <class T>
void check_bernoulli(const std::string& path, T zero, T one) {
  for (const uint64_t threshold : {uint64_t{0}, uint64_t{1} << 30, uint64_t{1} << 32}) {
    check_distribution(Bernoulli<T>{threshold, zero, one}, path);
  }
}

template <class T>
void check_narrow(const std::string& path, uint32_t range) {
  const uint32_t threshold = (0u - range) % range;
  check_distribution(RandIntNarrow<T>{-3, range, threshold}, path);
}

void check_path(const std::string& path) {
  check_distribution(Bits<uint32_t>{}, path);
  check_distribution(Bits<uint64_t>{}, path);
  check_reals<Uniform>(path, 1.0, 0.0, 0.9990234375);
  check_reals<Uniform>(path, 0.75, -0.25, 0.4375);
  check_reals<Normal>(path, 0.0, 1.0);
  check_reals<Normal>(path, 3.5, 1e-3);
  check_reals<Exponential>(path, 0.7);
  check_reals<TruncNormal>(path, 0.5, 2.0, 0.0, 0.9375, 0.03125, 0.03125, -3.0, 4.0);
  check_reals<TruncNormal>(path, 0.0, 1.0, 0.5, 1e-7, 1.0, 1e-9, 5.0, 6.0);
  check_bernoulli<uint8_t>(path, 0, 1);
  check_bernoulli<float>(path, 0, 1);
  check_bernoulli<double>(path, 0, 1);
  check_bernoulli<Half>(path, Half{0}, Half{0x3c00});
  check_bernoulli<BFloat16>(path, BFloat16{0}, BFloat16{0x3f80});
  check_narrow<uint8_t>(path, 6);
  check_narrow<int32_t>(path, 1u << 31);
  check_narrow<int32_t>(path, 42949673);        // one word in a hundred is rejected
  check_narrow<int64_t>(path, (1u << 31) + 1);  // half of the words are rejected
  check_narrow<int64_t>(path, 1);
  const uint64_t range = (uint64_t{1} << 63) + 1;
  check_distribution(RandIntWide<int64_t>{INT64_MIN, range, (0 - range) % range}, path);
  check_distribution(RandIntWide<int64_t>{5, uint64_t{1} << 40, 0}, path);
}

// What the loops inline must be what is specified, also for words that no test draws by chance.
template <class Word>
void check_leading_zeros(int bits) {
  where = "leading_zeros";
  for (int top = 0; top < bits; ++top) {
    const Word bit = Word{1} << top;
    for (const Word x : {bit, bit | (bit - 1), bit | (bit >> 1), bit + (bit >> 1) - (top > 1)}) {
      check(leading_zeros(x) == bits - 1 - top, "the number of leading zeros");
    }
  }
}

// Around every power of two, and half way between doubles there.
void check_to_double() {
  where = "to_double";
  for (int top = 0; top < 63; ++top) {
    for (int low = 0; low <= top; ++low) {
      const int64_t x = (int64_t{1} << top) + (int64_t{1} << low) / 2;
      for (const int64_t by : {-1, 0, 1}) {
        check(to_double(x + by) == static_cast<double>(x + by), "a number");
        check(to_double(-x + by) == static_cast<double>(-x + by), "a negative number");
      }
    }
  }
  for (const int64_t x : {INT64_MIN, INT64_MIN + 513, INT64_MAX - 512, INT64_MAX}) {
    check(to_double(x) == static_cast<double>(x), "a number at the end");
  }
}

}  // namespace

int main() {
  check_leading_zeros<uint32_t>(32);
  check_leading_zeros<uint64_t>(64);
  check_to_double();
  std::string paths;
  for (const std::string& path : simd_paths()) {
    set_simd_path(path);
    check_path(path);
    paths += " " + path;
  }
  std::printf("%lld checks,%s\n", static_cast<long long>(checks_passed), paths.c_str());
  return 0;
}
