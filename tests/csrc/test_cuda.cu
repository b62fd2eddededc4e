// The CUDA kernels against the core and the known answers, without torch.
//
//   test_cuda vectors.txt draws.txt     prints "N rows, M checks passed", or what fails
//
// Rows of vectors.txt that no kernel answers are those of test_core.cpp alone.
#include <cinttypes>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "../../csrc/core/derive.h"
#include "cuda_checks.h"
#include "cuda_draw_checks.cuh"
#include "cuda_draw_rows.cuh"
#include "names.h"

namespace {

using namespace fastseed;

// ------------------------------------------------------------------------------- derivation

const ScopeKey kScope{0x0123456789abcdefu, 0xfedcba9876543210u};
const Name kName{0xf2860cc6670678fdu, 0xd91a4120d8c6505cu};

// Everything that makes keys of kName in kScope, against stream_key.
void check_keys(uint32_t rank_word, uint32_t worker, uint64_t start, int64_t n, int shift) {
  const Stream stream{name_key(kScope, kName), rank_word, worker};
  DeviceArray<uint64_t> scope(std::vector<uint64_t>{kScope.key, kScope.tweak});
  const StreamAt at{scope.data(), kName, rank_word, worker};
  std::vector<uint64_t> keys, seeds;
  for (int64_t i = 0; i < n; ++i) {
    const Key key = stream_key(stream, start + static_cast<uint64_t>(i));
    keys.insert(keys.end(), {key.lo, key.hi});
    seeds.push_back(key.lo);
  }
  DeviceArray<uint64_t> k(2 * n, shift), s(n, shift);
  launch_derive_keys(stream, start, n, k.data(), CudaStream{});
  launch_derive_seeds(stream, start, n, s.data(), CudaStream{});
  check(std::equal(keys.begin(), keys.end(), k.read()), "derive_keys");
  check(std::equal(seeds.begin(), seeds.end(), s.read()), "derive_seeds");
  for (const bool memory : {false, true}) {
    DeviceArray<uint64_t> r(2 * n, shift);
    DeviceArray<int64_t> p(n, shift / 2);
    if (memory) {
      launch_reseed(at, start, n, r.data(), p.data(), CudaStream{});
    } else {
      launch_reseed(stream, start, n, r.data(), p.data(), CudaStream{});
    }
    check(std::equal(keys.begin(), keys.end(), r.read()), "reseed: keys");
    const std::vector<int64_t> zeros(static_cast<size_t>(n), 0);
    check(std::equal(zeros.begin(), zeros.end(), p.read()), "reseed: positions");
  }
}

void check_derivation() {
  const uint64_t starts[] = {0, (uint64_t{1} << 32) - 700, ~uint64_t{0} - 5};
  for (const int multiprocessors : {1, 3}) {
    set_multiprocessors(multiprocessors);
    for (const int64_t n : {0, 1, 2, 3, 255, 511, 512, 513, 514, 1025, 4096, 9999}) {
      for (const int shift : {0, 1, 2, 3}) {
        for (const uint64_t start : starts) {
          where = "keys: " + std::to_string(n) + " from " + std::to_string(start) + ", shift " +
                  std::to_string(shift);
          check_keys(3u | 2u << 24, 0xfffffffeu, start, n, shift);
        }
      }
    }
  }
}

void check_reseed_from() {
  for (const int64_t n : {0, 1, 255, 256, 257, 5001}) {
    for (const int shift : {0, 1}) {
      where = "reseed from " + std::to_string(n) + " seeds, shift " + std::to_string(shift);
      std::vector<uint64_t> seeds;
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < n; ++i) {
        seeds.push_back(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u);
        indices.push_back((i % 7) << 60 | i);
      }
      DeviceArray<uint64_t> from(seeds, shift);
      DeviceArray<int64_t> at(indices, shift);
      for (const bool indexed : {false, true}) {
        DeviceArray<uint64_t> keys(2 * n, shift);
        DeviceArray<int64_t> positions(n, shift);
        launch_reseed_from(from.data(), indexed ? at.data() : nullptr, kName, n, keys.data(),
                           positions.data(), CudaStream{});
        const uint64_t* k = keys.read();
        const int64_t* p = positions.read();
        for (size_t i = 0; i < seeds.size(); ++i) {
          const Key key =
              key_of_seed(seeds[i], kName, indexed ? static_cast<uint64_t>(indices[i]) : 0);
          check(k[2 * i] == key.lo && k[2 * i + 1] == key.hi && p[i] == 0, "reseed_from");
        }
      }
    }
  }
}

void check_failure() {
#if !defined(__CUDACC__)
  where = "a launch that fails";
  DeviceArray<uint64_t> out(4);
  shim_fails = true;
  try {
    launch_derive_seeds(Stream{}, 0, 4, out.data(), CudaStream{});
    fail("nothing was thrown");
  } catch (const std::runtime_error& error) {
    check(error.what() == std::string("fastseed.derive_seeds: unspecified launch failure"),
          error.what());
  }
  const int before = shim_launches;
  launch_derive_seeds(Stream{}, 0, 0, out.data(), CudaStream{});  // nothing to do, nothing fails
  check(shim_launches == before, "an empty launch");
  shim_fails = false;
#endif
}

// ------------------------------------------------------------------------------- known answers

// The coordinates that a row begins with.
struct RowName {
  ScopeKey scope;
  Name name;
};

RowName name_of_row(std::istringstream& row) {
  uint64_t master, task, epoch, step;
  std::string name;
  row >> master >> task >> epoch >> step >> name;
  const ScopeKey scope =
      scope_key(master, static_cast<uint32_t>(task), static_cast<uint32_t>(epoch), step);
  return RowName{scope, name_of(name)};
}

void check_key_row(std::istringstream& row, Domain domain) {
  const RowName at = name_of_row(row);
  uint64_t rank = 0, worker = 0, index = 0, lo = 0, hi = 0;
  if (domain == Domain::kStream) {
    row >> rank >> worker >> index;
  } else {
    row >> index >> worker;  // the occurrence
  }
  row >> std::hex >> lo >> hi;
  const uint32_t rank_word = with_domain(static_cast<uint32_t>(rank), domain);
  const uint32_t word = static_cast<uint32_t>(worker);
  DeviceArray<uint64_t> scope(std::vector<uint64_t>{at.scope.key, at.scope.tweak});
  for (const bool memory : {false, true}) {
    DeviceArray<uint64_t> out(2);
    DeviceArray<int64_t> position(1);
    if (memory) {
      launch_reseed(StreamAt{scope.data(), at.name, rank_word, word}, index, 1, out.data(),
                    position.data(), CudaStream{});
    } else {
      launch_derive_keys(Stream{name_key(at.scope, at.name), rank_word, word}, index, 1, out.data(),
                         CudaStream{});
    }
    const uint64_t* key = out.read();
    check(!row.fail() && key[0] == lo && key[1] == hi, "the key of a row");
  }
}

std::string digest_of(const uint64_t* seeds, int64_t n) {
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

void check_seeds_row(std::istringstream& row) {
  const RowName at = name_of_row(row);
  uint64_t rank = 0, worker = 0, start = 0;
  int64_t n = 0;
  std::string digest;
  row >> rank >> worker >> start >> n >> digest;
  const uint32_t rank_word = with_domain(static_cast<uint32_t>(rank), Domain::kStream);
  const Stream stream{name_key(at.scope, at.name), rank_word, static_cast<uint32_t>(worker)};
  DeviceArray<uint64_t> out(n, 1);
  launch_derive_seeds(stream, start, n, out.data(), CudaStream{});
  check(!row.fail() && digest_of(out.read(), n) == digest, "the digest of the seeds");
}

int check_file(const char* path) {
  std::ifstream file(path);
  int rows = 0;
  for (std::string text; std::getline(file, text);) {
    where = text.substr(0, 160);
    std::istringstream row(text);
    std::string kind;
    row >> kind;
    if (kind == "stream" || kind == "sample") {
      check_key_row(row, kind == "stream" ? Domain::kStream : Domain::kSample);
    } else if (kind == "seeds") {
      check_seeds_row(row);
    } else if (kind == "draw") {
      check_draw_row(row);
    } else if (kind == "real") {
      check_real_row(row);
    } else {
      const bool other = text.empty() || kind[0] == '#' || kind == "block" || kind == "scope" ||
                         kind == "name" || kind == "level2" || kind == "mt19937" ||
                         kind == "narrow";
      check(other, "the kind of a row");
      continue;
    }
    ++rows;
  }
  if (rows == 0) {
    fail(std::string("no rows in ") + path);
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  where = "the command line";
  if (argc < 2) {
    fail("arguments are needed: files of known answers");
  }
  int rows = 0;
  for (int i = 1; i < argc; ++i) {
    rows += check_file(argv[i]);
  }
  check_derivation();
  check_reseed_from();
  check_failure();
  check_draws();
  std::printf("%d rows, %" PRId64 " checks passed\n", rows, checks_passed);
  return 0;
}
