// Dropout on the CPU and by the CUDA kernels, against the core and the known answers, without
// torch.
//
//   test_dropout dropout.txt     prints "N rows, M checks passed on: paths", or what fails
#include <cinttypes>
#include <cstring>
#include <fstream>

#include "../../../csrc/core/derive.h"
#include "../../../csrc/core/dropout.h"
#include "../cuda_checks.h"
#include "../fields.h"
#include "../names.h"

namespace {

using namespace fastseed;

template <class T>
bool same(const T* a, const T* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(T)) == 0;
}

// Element by element.
template <class T>
std::vector<T> by_the_core(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                           const std::vector<T>& in) {
  std::vector<T> out(in.size());
  const auto load_word = [](const uint64_t* word) { return *word; };
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const int64_t run = at / layout.length;
    const DropoutKey row = keys.row(run / layout.runs, load_word);
    const uint64_t j =
        row.first + static_cast<uint64_t>(layout.start(run % layout.runs) + at % layout.length);
    const Block block = draw_block(row.key, j / kDropoutEach);
    out[i] = rule(in[i], dropout_number(block, static_cast<int>(j % kDropoutEach)));
  }
  return out;
}

template <class T>
void check_all(const Dropout<T>& rule, const std::vector<uint64_t>& words, int64_t width,
               const Layout& layout, const std::vector<T>& in) {
  const int64_t n = static_cast<int64_t>(in.size());
  const int64_t count = static_cast<int64_t>(words.size()) / width;
  const DropoutKeys keys{words.data(), width, count};
  const std::vector<T> expected = by_the_core(rule, keys, layout, in);
  for (const std::string& path : simd_paths()) {
    set_simd_path(path);
    std::vector<T> out(in.size());
    launch_dropout(rule, keys, layout, in.data(), out.data(), Range{0, n / 3});
    launch_dropout(rule, keys, layout, in.data(), out.data(), Range{n / 3, n});
    check(same(out.data(), expected.data(), n), ("the elements on " + path).c_str());
  }
  DeviceArray<uint64_t> device_words(words);
  const DropoutKeys there{device_words.data(), width, count};
  const int shifts[][2] = {{0, 0}, {1, 1}, {3, 0}, {0, 1}};  // with and without whole vectors
  for (const auto& shift : shifts) {
    set_multiprocessors(shift[0] + 1);
    DeviceArray<T> from(in, shift[0]);
    DeviceArray<T> to(n, shift[1]);
    launch_dropout<T>(rule, there, layout, from.data(), to.data(), CudaStream{});
    check(same(to.read(), expected.data(), n), "the elements by the kernel");
  }
}

// A run of `n` elements, and a box of a larger tensor.
template <class T>
void check_layouts(const Dropout<T>& rule, Key key, uint64_t first, const std::vector<T>& in) {
  const int64_t n = static_cast<int64_t>(in.size());
  Layout line{n, 1, static_cast<int64_t>(first), 0, {}, {}};
  check_all(rule, {key.lo, key.hi}, 2, line, in);
  line.offset = 0;
  check_all(rule, {key.lo, key.hi, first}, 3, line, in);
  if (n % 4 == 0) {
    line.length = n / 2;
    check_all(rule, {key.lo, key.hi, first, key.hi, key.lo, first + 1}, 3, line, in);
    const Layout box{n / 4, 2, 3, 1, {2}, {n / 4 + 5}};
    check_all(rule, {key.lo, key.hi, first, ~key.lo, key.hi, 2}, 3, box, in);
    const Layout scattered{1, n, 0, 2, {n / 4, 4}, {9, 2}};
    check_all(rule, {key.lo, key.hi, first}, 3, scattered, in);
    // the index after 2^64 - 1 is 0
    for (const uint64_t before : {uint64_t{1}, uint64_t{7}, uint64_t{8}, uint64_t{11}}) {
      check_all(rule, {key.lo, key.hi, ~uint64_t{0} - before}, 3, Layout{n, 1, 0, 0, {}, {}}, in);
      check_all(rule, {key.lo, key.hi, ~uint64_t{0} - before}, 3, scattered, in);
    }
    // channels: all elements of one have its number, one after the other or apart
    const Layout channels{1, n, 0, 2, {n / 4, 4}, {1, 0}};
    const Layout one_channel{1, n, 3, 1, {n}, {0}};
    check_all(rule, {key.lo, key.hi, first}, 3, one_channel, in);
    const Layout channels_last{n / 4, 4, 0, 1, {4}, {0}};
    for (const uint64_t begin : {first, ~uint64_t{0} - 2}) {
      check_all(rule, {key.lo, key.hi, begin}, 3, channels, in);
      check_all(rule, {key.lo, key.hi, begin}, 3, channels_last, in);
    }
  }
}

template <class T>
T of_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(value));  // little-endian
  return value;
}

template <class T>
std::vector<T> counted(int64_t n) {
  std::vector<T> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(rounded<T>(static_cast<RealOf<T>>(i + 1)));
  }
  return values;
}

void check_mask(Fields& f) {
  const Key key{hex(f.next()), hex(f.next())};
  const uint64_t first = std::stoull(f.next());
  const int64_t threshold = std::stoll(f.next()), n = std::stoll(f.next());
  const std::string stays = f.next();
  const Layout line{n, 1, static_cast<int64_t>(first), 0, {}, {}};
  const DropoutKeys keys{&key.lo, 2, 1};
  const std::vector<float> in = counted<float>(n);
  const std::vector<float> found = by_the_core(Dropout<float>(threshold), keys, line, in);
  check(static_cast<int64_t>(stays.size()) == n, "as many bits as elements");
  for (int64_t i = 0; i < n; ++i) {
    check((found[static_cast<size_t>(i)] != 0) == (stays[static_cast<size_t>(i)] == '1'), "a mask");
  }
  check_layouts(Dropout<float>(threshold), key, first, in);
  check_layouts(Dropout<double>(threshold), key, first, counted<double>(n));
  check_layouts(Dropout<Half>(threshold), key, first, counted<Half>(n));
  check_layouts(Dropout<BFloat16>(threshold), key, first, counted<BFloat16>(n));
}

template <class T>
void check_value(Fields& f) {
  const Dropout<T> rule(std::stoll(f.next()));
  const T element = of_bits<T>(hex(f.next())), expected = of_bits<T>(hex(f.next()));
  const T found = rule(element, 0xffff);
  check(rule.threshold > 0xffff || same(&found, &expected, 1), "a value");
  check_layouts(rule, Key{1, 2}, 0, std::vector<T>(24, element));
}

void check_key(const ScopeKey& scope, const LayerCall& call, uint64_t count,
               const uint64_t (&expected)[3]) {
  const DropoutKey found = layer_key(scope, call, count);
  const uint64_t words[3] = {found.key.lo, found.key.hi, found.first};
  check(same(words, expected, 3), "the key of a layer");
  uint64_t own[3];
  const uint64_t at[2] = {scope.key, scope.tweak};
  const auto times = static_cast<int64_t>(count);
  launch_layer_key(at, &times, call, own, Range{0, 1});
  check(same(own, expected, 3), "the key of a layer on the CPU");
  DeviceArray<uint64_t> device_scope(std::vector<uint64_t>{scope.key, scope.tweak});
  DeviceArray<int64_t> device_count(std::vector<int64_t>{static_cast<int64_t>(count)});
  DeviceArray<uint64_t> out(3);
  launch_layer_key(device_scope.data(), device_count.data(), call, out.data(), CudaStream{});
  check(same(out.read(), expected, 3), "the key of a layer by the kernel");
}

void check_layer(Fields& f) {
  const uint64_t master = std::stoull(f.next());
  const uint32_t task = static_cast<uint32_t>(std::stoul(f.next()));
  const uint32_t epoch = static_cast<uint32_t>(std::stoul(f.next()));
  const uint64_t step = std::stoull(f.next());
  const std::string name = "dropout/" + f.next(), label = f.next();
  const uint64_t row = std::stoull(f.next()), elements = std::stoull(f.next());
  const uint64_t index = label == "-" ? 0 : name_of(label).lo >> 1;
  const LayerCall call{name_of(name), index, 0, elements, kSharedRank};
  const uint64_t expected[3] = {hex(f.next()), hex(f.next()), hex(f.next())};
  check_key(scope_key(master, task, epoch, step), call, row, expected);
}

// The key of a draw of a block, of any rank, whose index counts.
void check_block(Fields& f) {
  const uint64_t master = std::stoull(f.next());
  const uint32_t task = static_cast<uint32_t>(std::stoul(f.next()));
  const uint32_t epoch = static_cast<uint32_t>(std::stoul(f.next()));
  const uint64_t step = std::stoull(f.next());
  const std::string name = "keyed/" + f.next();
  const uint64_t index = std::stoull(f.next()), index_step = std::stoull(f.next());
  const uint32_t rank = static_cast<uint32_t>(std::stoul(f.next()));
  const uint64_t count = std::stoull(f.next());
  const LayerCall call{name_of(name), index, index_step, 0, rank};
  const uint64_t expected[3] = {hex(f.next()), hex(f.next()), 0};
  check_key(scope_key(master, task, epoch, step), call, count, expected);
}

void check_row(Fields& f) {
  const std::string kind = f.next();
  if (kind == "mask") {
    check_mask(f);
  } else if (kind == "layer") {
    check_layer(f);
  } else if (kind == "block") {
    check_block(f);
  } else if (kind == "p") {  // of Python alone
    f.next();
    f.next();
  } else if (kind == "value") {
    const std::string dtype = f.next();
    if (dtype == "float32") {
      check_value<float>(f);
    } else if (dtype == "float64") {
      check_value<double>(f);
    } else if (dtype == "float16") {
      check_value<Half>(f);
    } else if (dtype == "bfloat16") {
      check_value<BFloat16>(f);
    } else {
      fail("an unknown dtype");
    }
  } else {
    fail("an unknown kind of row");
  }
  std::string more;
  check(!(f.in >> more), "no more columns");
}

}  // namespace

int main(int argc, char** argv) {
  where = "the command line";
  if (argc != 2) {
    fail("one argument is needed: dropout.txt");
  }
  std::ifstream file(argv[1]);
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') {
      continue;
    }
    where = line;
    Fields fields(line);
    check_row(fields);
    ++rows;
  }
  std::string paths;
  for (const std::string& path : simd_paths()) {
    paths += " " + path;
  }
  std::printf("%d rows, %" PRId64 " checks passed on:%s\n", rows, checks_passed, paths.c_str());
  return 0;
}
