// Perturbations on the CPU and by the CUDA kernel, against the known answers and each other,
// without torch.
//
//   test_perturb perturb.txt     prints "N rows, M checks passed on: paths", or what fails
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <sstream>

#include "../../../csrc/core/derive.h"
#include "../../../csrc/core/perturb.h"
#include "../cuda_checks.h"
#include "../fields.h"

namespace {

using namespace fastseed;

// What a call is given, and what it leaves.
template <class T>
struct Call {
  Layout layout;
  bool rademacher;
  std::vector<uint64_t> keys;
  std::vector<double> scales;
  std::vector<T> numbers;
  std::vector<int8_t> bytes;
  std::vector<int64_t> list;  // pairs; the first holds a count

  Perturbation<T> of(Perturb action, const uint64_t* k, const double* s, T* n, int8_t* b,
                     int64_t* rows) const {
    const bool lists = action == Perturb::kRecord;
    const bool keeps = lists || action == Perturb::kUndo;
    const int64_t capacity = static_cast<int64_t>(list.size()) / 2 - 1;
    return {action,
            rademacher,
            static_cast<int64_t>(scales.size()),
            k,
            s,
            n,
            keeps ? b : nullptr,
            lists ? rows : nullptr,
            lists ? capacity : 0};
  }
};

// The rows of a list in their order: a device writes them in any.
using Rows = std::vector<std::pair<int64_t, int64_t>>;

Rows sorted(const int64_t* list, int64_t capacity) {
  Rows rows;
  for (int64_t i = 1; i <= std::min(list[0], capacity); ++i) {
    rows.emplace_back(list[2 * i], list[2 * i + 1]);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

template <class T>
bool same(const T* a, const T* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(T)) == 0;
}

// Do it on the CPU, in parts.
template <class T>
Call<T> on_the_cpu(Call<T> call, Perturb action) {
  const Perturbation<T> what = call.of(action, call.keys.data(), call.scales.data(),
                                       call.numbers.data(), call.bytes.data(), call.list.data());
  const int64_t n = call.layout.length * call.layout.runs;
  launch_perturb(what, call.layout, Range{0, n / 3});
  launch_perturb(what, call.layout, Range{n / 3, n});
  return call;
}

// Do it by the kernel and compare: with `expected`, and all of a full list but which rows it has.
template <class T>
void check_kernel(const Call<T>& call, Perturb action, const Call<T>& expected, int shift) {
  set_multiprocessors(shift + 1);
  DeviceArray<uint64_t> keys(call.keys);
  DeviceArray<double> scales(call.scales);
  DeviceArray<T> numbers(call.numbers, shift);
  DeviceArray<int8_t> bytes(call.bytes, shift);
  DeviceArray<int64_t> list(call.list);
  launch_perturb(
      call.of(action, keys.data(), scales.data(), numbers.data(), bytes.data(), list.data()),
      call.layout, CudaStream{});
  const int64_t* found = list.read();
  const int64_t capacity = static_cast<int64_t>(call.list.size()) / 2 - 1;
  check(found[0] == expected.list[0], "how many numbers a list needs");
  if (action == Perturb::kRecord && found[0] > capacity) {
    numbers.read();  // nothing around them was written
    bytes.read();
    return;
  }
  check(same(numbers.read(), expected.numbers.data(), call.numbers.size()), "the numbers");
  check(same(bytes.read(), expected.bytes.data(), call.bytes.size()), "the bytes");
  check(sorted(found, capacity) == sorted(expected.list.data(), capacity), "the list");
}

template <class T>
Call<T> check_call(const Call<T>& call, Perturb action) {
  Call<T> first = on_the_cpu(call, action);
  for (const std::string& path : simd_paths()) {
    set_simd_path(path);
    const Call<T> found = on_the_cpu(call, action);
    check(same(found.numbers.data(), first.numbers.data(), call.numbers.size()) &&
              found.bytes == first.bytes && found.list == first.list,
          ("what is left on " + path).c_str());
  }
  for (const int shift : {0, 1, 3}) {  // addresses with and without whole vectors
    check_kernel(call, action, first, shift);
  }
  return first;
}

// ---------------------------------------------------------------- known answers

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) {
    parts.push_back(part);
  }
  return parts;
}

template <class T>
std::vector<T> numbers_of(const std::string& text) {
  std::vector<T> numbers;
  for (const std::string& part : split(text, ',')) {
    numbers.push_back(same_bits<T>(static_cast<Pattern<T>>(hex(part))));
  }
  return numbers;
}

double scale_of(const std::string& text) {
  return same_bits<double>(hex(text));
}

template <class T>
void check_row(const std::string& kind, Fields& f) {
  const std::string noise = f.next();
  check(noise == "normal" || noise == "rademacher", "a noise");
  Call<T> call{};
  call.rademacher = noise == "rademacher";
  call.layout = {0, 1, static_cast<int64_t>(std::stoull(f.next())), 0, {}, {}};
  call.list.assign(2, 0);
  if (kind == "add") {
    for (const std::string& entry : split(f.next(), ',')) {
      const std::vector<std::string> parts = split(entry, ':');
      check(parts.size() == 3, "an entry of three parts");
      call.keys.insert(call.keys.end(), {hex(parts[0]), hex(parts[1])});
      call.scales.push_back(scale_of(parts[2]));
    }
  } else {
    call.keys = {hex(f.next()), hex(f.next())};
    call.scales = {scale_of(f.next())};
  }
  call.numbers = numbers_of<T>(f.next());
  const std::vector<T> after = numbers_of<T>(f.next());
  check(after.size() == call.numbers.size(), "as many numbers after as before");
  const size_t n = after.size();
  call.layout.length = static_cast<int64_t>(n);
  call.bytes.assign(n, 99);
  if (kind == "add") {
    const Call<T> found = check_call(call, Perturb::kAdd);
    check(same(found.numbers.data(), after.data(), n), "the numbers after");
    return;
  }
  const std::vector<std::string> steps = split(f.next(), ',');
  check(steps.size() == n, "as many bytes as numbers");
  call.list.assign(2 * (n + 1), 0);
  const Call<T> moved = check_call(call, Perturb::kRecord);
  check(same(moved.numbers.data(), after.data(), n), "the numbers after");
  for (size_t i = 0; i < n; ++i) {
    check(std::to_string(moved.bytes[i]) == steps[i], "a byte");
  }
  Call<T> back = check_call(moved, Perturb::kUndo);
  for (int64_t i = 1; i <= moved.list[0]; ++i) {
    const size_t at = static_cast<size_t>(2 * i);
    back.numbers[static_cast<size_t>(moved.list[at])] =
        same_bits<T>(static_cast<Pattern<T>>(moved.list[at + 1]));
  }
  check(same(back.numbers.data(), call.numbers.data(), n), "the numbers from before");
}

// ---------------------------------------------------------------- layouts, entries, lists

template <class T>
void check_shapes() {
  const Layout layouts[] = {
      {1, 1, 0, 0, {}, {}},
      {2051, 1, 0, 0, {}, {}},
      {2051, 1, (int64_t{1} << 40) + 3, 0, {}, {}},
      {50, 6, 11, 1, {6}, {100}},
      {1, 300, 5, 2, {20, 15}, {40, 2}},
      {33, 4, 7, 1, {4}, {1000}},
  };
  uint64_t state = 1;
  const auto next = [&state] { return (state = philox4x32(state, Block{{1, 2, 3, 4}}).lo()); };
  for (const Layout& layout : layouts) {
    for (int variant = 0; variant < 8; ++variant) {
      const int64_t n = layout.length * layout.runs;
      where = std::to_string(n) + " numbers, variant " + std::to_string(variant);
      Call<T> call{};
      call.layout = layout;
      call.rademacher = variant % 2 == 1;
      const double scale = variant < 4 ? 1e-3 : 30.0;
      for (int64_t i = 0; i < n; ++i) {
        const float u = unit(static_cast<uint32_t>(next())) - 0.5f;
        using Real = RealOf<T>;
        call.numbers.push_back(rounded<T>(static_cast<Real>(i % 97 == 3 ? 1e30f : u * 0.1f)));
        call.bytes.push_back(static_cast<int8_t>(next()));
      }
      for (int entry = 0; entry < (variant % 4 < 2 ? 1 : 3); ++entry) {
        call.keys.insert(call.keys.end(), {next(), next()});
        call.scales.push_back(scale * (entry + 1));
      }
      call.list.assign(variant % 4 == 0 ? 2 : 2 * (static_cast<size_t>(n) + 1), 0);
      check_call(call, Perturb::kAdd);
      if (call.scales.size() == 1) {
        check_call(call, Perturb::kRecord);
        check_call(call, Perturb::kUndo);
      }
    }
  }
}

int check_rows(const char* path) {
  std::ifstream file(path);
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') {
      continue;
    }
    where = line.substr(0, 200);
    Fields fields(line);
    const std::string kind = fields.next();
    check(kind == "add" || kind == "undo", "a known kind of row");
    const std::string dtype = fields.next();
    if (dtype == "float32") {
      check_row<float>(kind, fields);
    } else if (dtype == "float64") {
      check_row<double>(kind, fields);
    } else if (dtype == "float16") {
      check_row<Half>(kind, fields);
    } else if (dtype == "bfloat16") {
      check_row<BFloat16>(kind, fields);
    } else {
      fail("an unknown dtype");
    }
    std::string more;
    check(!(fields.in >> more), "no more columns");
    ++rows;
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  where = "the command line";
  if (argc != 2) {
    fail("one argument is needed: perturb.txt");
  }
  const int rows = check_rows(argv[1]);
  check_shapes<float>();
  check_shapes<double>();
  check_shapes<Half>();
  check_shapes<BFloat16>();
  std::string paths;
  for (const std::string& path : simd_paths()) {
    paths += " " + path;
  }
  std::printf("%d rows, %" PRId64 " checks passed on:%s\n", rows, checks_passed, paths.c_str());
  return 0;
}
