// The core and every CPU kernel of this machine against the known answers, without torch.
//
//   test_core vectors.txt      prints "N rows, M checks passed", or the row that fails
//
// A row of a kind that is not known here is a failure.
#include <algorithm>
#include <cinttypes>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "../../csrc/core/derive.h"
#include "../../csrc/core/mt19937.h"
#include "../../csrc/core/philox.h"
#include "../../csrc/core/shuffle.h"
#include "check.h"
#include "kernel_checks.h"
#include "names.h"
#include "sha256.h"

namespace {

using namespace fastseed;

// ------------------------------------------------------------------------------- reading a row

// The columns of one row, taken from left to right.
class Columns {
 public:
  explicit Columns(const std::string& line) {
    std::istringstream stream(line);
    for (std::string field; std::getline(stream, field, ' ');) {
      fields_.push_back(field);
    }
  }

  const std::string& text() {
    if (next_ == fields_.size()) {
      fail("a column is missing");
    }
    return fields_[next_++];
  }
  uint64_t decimal() {
    return number(10, text());
  }
  uint32_t word() {
    return static_cast<uint32_t>(hex(8));
  }
  uint64_t bits64() {
    return hex(16);
  }
  void end() const {
    check(next_ == fields_.size(), "there are too many columns");
  }

 private:
  uint64_t hex(size_t digits) {
    const std::string& field = text();
    if (field.size() != digits) {
      fail("a hexadecimal number has the wrong length");
    }
    return number(16, field);
  }

  static uint64_t number(int base, const std::string& field) {
    size_t used = 0;
    uint64_t value = 0;
    try {
      value = std::stoull(field, &used, base);
    } catch (const std::exception&) {
    }
    if (used != field.size() || field[0] == '-' || field[0] == '+') {
      fail("a number cannot be read: " + field);
    }
    return value;
  }

  std::vector<std::string> fields_;
  size_t next_ = 0;
};

ScopeKey scope_of(Columns& row) {
  const uint64_t master = row.decimal();
  const uint32_t task = static_cast<uint32_t>(row.decimal());
  const uint32_t epoch = static_cast<uint32_t>(row.decimal());
  return scope_key(master, task, epoch, row.decimal());
}

// ------------------------------------------------------------------------------- kinds of rows

void check_block(Columns& row) {
  const uint64_t key = row.bits64();
  Block counter;
  for (uint32_t& w : counter.w) {
    w = row.word();
  }
  const Block r = philox4x32(key, counter);
  for (const uint32_t w : r.w) {
    check(w == row.word(), "philox4x32");
  }
  const BlockRange range{key, 0, counter.w[2], counter.w[3], counter.lo()};
  check_paths_agree(range, Key{r.lo(), r.hi()});
}

void check_scope(Columns& row) {
  const ScopeKey scope = scope_of(row);
  check(scope.key == row.bits64(), "scope_key: key");
  check(scope.tweak == row.bits64(), "scope_key: tweak");
}

void check_name(Columns& row) {
  const Name name = name_of(row.text());
  for (const uint64_t half : {name.lo, name.hi}) {
    check(static_cast<uint32_t>(half) == row.word(), "the name: a low word");
    check(static_cast<uint32_t>(half >> 32) == row.word(), "the name: a high word");
  }
}

NameKey name_key_of(Columns& row) {
  const ScopeKey scope = scope_of(row);
  return name_key(scope, name_of(row.text()));
}

void check_level2(Columns& row) {
  const NameKey name = name_key_of(row);
  check(name.key == row.bits64(), "name_key: key");
  check(name.tweak == row.bits64(), "name_key: tweak");
}

void check_key(Columns& row, const Stream& stream, uint64_t index) {
  const Key key = stream_key(stream, index);
  check(key.lo == row.bits64(), "stream_key: lo");
  check(key.hi == row.bits64(), "stream_key: hi");
  const BlockRange range{stream.name.key, stream.name.tweak, stream.rank_word, stream.worker,
                         index};
  check_paths_agree(range, key);
}

Stream stream_of(Columns& row) {
  const NameKey name = name_key_of(row);
  const uint32_t rank = static_cast<uint32_t>(row.decimal());
  const uint32_t worker = static_cast<uint32_t>(row.decimal());
  return Stream{name, with_domain(rank, Domain::kStream), worker};
}

void check_stream(Columns& row) {
  const Stream stream = stream_of(row);
  check_key(row, stream, row.decimal());
}

void check_sample(Columns& row) {
  const NameKey name = name_key_of(row);
  const uint64_t index = row.decimal();
  const uint32_t occurrence = static_cast<uint32_t>(row.decimal());
  check_key(row, Stream{name, with_domain(0, Domain::kSample), occurrence}, index);
}

void check_narrow(Columns& row) {
  const NameKey name = name_key_of(row);
  const int bits = static_cast<int>(row.decimal());
  const uint32_t rank = static_cast<uint32_t>(row.decimal());
  const uint32_t worker = static_cast<uint32_t>(row.decimal());
  const uint64_t index = row.decimal();
  check(narrow_seed(name, rank, worker, index, bits) == row.decimal(), "narrow_seed");
}

void check_state(Columns& row) {
  Key key;
  key.lo = row.bits64();
  key.hi = row.bits64();
  std::vector<uint32_t> words;
  for (int i = 0; i < kMtWords; ++i) {
    words.push_back(row.word());
  }
  for (const std::string& name : simd_paths()) {
    set_simd_path(name);
    Poisoned<uint32_t> state(kMtWords, 3);
    launch_mt19937_expand(key, state.data());
    state.check_margins();
    check(std::equal(words.begin(), words.end(), state.data()), name.c_str());
  }
}

std::string hex_digest(const uint64_t* seeds, int64_t n) {
  Sha256 sha;
  for (int64_t i = 0; i < n; ++i) {
    for (int k = 0; k < 8; ++k) {
      sha.add(static_cast<uint8_t>(seeds[i] >> (8 * k)));
    }
  }
  std::string text;
  for (const uint8_t byte : sha.finish()) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

void check_seeds(Columns& row) {
  const Stream stream = stream_of(row);
  const uint64_t start = row.decimal();
  const int64_t n = static_cast<int64_t>(row.decimal());
  std::vector<uint64_t> seeds(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    seeds[static_cast<size_t>(i)] = stream_key(stream, start + static_cast<uint64_t>(i)).lo;
  }
  check(hex_digest(seeds.data(), n) == row.text(), "the digest of the seeds");
  for (const std::string& name : simd_paths()) {
    set_simd_path(name);
    Poisoned<uint64_t> out(n, 3);
    launch_derive_seeds(stream, start, n, out.data(), Range{0, n});
    out.check_margins();
    check(std::equal(seeds.begin(), seeds.end(), out.data()), name.c_str());
  }
}

const std::map<std::string, void (*)(Columns&)> kKinds = {
    {"block", check_block},   {"scope", check_scope},   {"name", check_name},
    {"level2", check_level2}, {"stream", check_stream}, {"sample", check_sample},
    {"mt19937", check_state}, {"seeds", check_seeds},   {"narrow", check_narrow},
};

int check_file(const char* path) {
  std::ifstream file(path);
  int rows = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') {
      continue;
    }
    where = line.substr(0, 160);
    Columns row(line);
    const auto kind = kKinds.find(row.text());
    if (kind == kKinds.end()) {
      fail("unknown kind of row");
    }
    kind->second(row);
    row.end();
    ++rows;
  }
  if (rows == 0) {
    fail(std::string("no rows in ") + path);
  }
  return rows;
}

// What FASTSEED_SIMD names, or else the fastest.
std::string first_path() {
  try {
    return simd_path();
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  where = "the command line";
  if (argc != 2) {
    fail("one argument is needed: the file of vectors");
  }
  const std::string chosen = first_path();
  const int rows = check_file(argv[1]);
  check_kernels();
  std::string paths;
  for (const std::string& name : simd_paths()) {
    paths += " " + name;
  }
  std::printf("%d rows, %" PRId64 " checks passed on:%s; chosen: %s\n", rows, checks_passed,
              paths.c_str(), chosen.c_str());
  return 0;
}
