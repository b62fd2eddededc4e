// The digest on the CPU against the core, without torch: all paths of this CPU.
//
//   test_digest     prints "M checks passed on: paths", or what fails
#include <cinttypes>
#include <cstring>

#include "../../csrc/core/derive.h"
#include "../../csrc/cpu/dispatch.h"
#include "digest_rows.h"

namespace {

using namespace fastseed;

// Bytes that end where their memory does, so that a sanitizer sees reads past them.
class Exact {
 public:
  Exact(const std::vector<uint8_t>& bytes, int shift)
      : memory_(new uint8_t[bytes.size() + static_cast<size_t>(shift)]), shift_(shift) {
    if (!bytes.empty()) {
      std::memcpy(memory_.get() + shift, bytes.data(), bytes.size());
    }
  }
  const uint8_t* data() const {
    return memory_.get() + shift_;
  }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  int shift_;
};

void check_layouts() {
  each_layout([](const RowLayout& layout) {
    where = layout.text();
    const Exact bytes(bytes_of(layout), layout.shift);
    const int64_t n = layout.groups();
    const int64_t cuts[][2] = {{0, n}, {0, n / 3}, {n / 3, n}, {n / 2, n / 2 + n / 5}, {n, n}};
    for (const auto& cut : cuts) {
      const Sum expected = by_the_core(layout, bytes.data(), cut[0], cut[1]);
      Sum found;
      digest_rows(layout.key, layout.at(bytes.data()), cut[0], cut[1], found.w);
      check(found == expected, "the sum of some groups");
    }
    const int64_t tiles = (n + kDigestTile - 1) / kDigestTile;
    const std::vector<int64_t> words = layout.words(bytes.data(), 0);
    Sum sum = by_the_core(layout, bytes.data(), 0, n), all;
    for (uint64_t& word : all.w) {
      word = ~uint64_t{0} - 2;  // into sums that wrap round
    }
    launch_digest(DigestPlan{words.data(), 1, tiles}, all.w, Range{0, tiles / 2});
    launch_digest(DigestPlan{words.data(), 1, tiles}, all.w, Range{tiles / 2, tiles});
    sum.w[0] -= 3;
    sum.w[1] -= 3;
    sum.w[1] += sum.w[0] < ~uint64_t{0} - 2 ? 1 : 0;
    check(all == sum, "the sum of a plan");
  });
}

void check_loops() {
  const std::string first = simd_path();
  for (const int64_t groups : {0, 1, 3, 4, 7, 8, 9, 31, 32, 33, 100, 1000}) {
    const RowLayout layout{77, 16 * groups, 1, 16 * groups, (uint64_t{1} << 32) - 40, 0, 0};
    where = layout.text();
    const Exact bytes(bytes_of(layout), 3);
    const Sum expected = by_the_core(layout, bytes.data(), 0, groups);
    for (const std::string& name : simd_paths()) {
      set_simd_path(name);
      Sum found;
      cpu_path().digest(layout.key, layout.group_number, bytes.data(), groups, found.w);
      check(found == expected, name.c_str());
    }
    set_simd_path(first);
  }
}

// Words of up to 2^64 - 1, as 2^32 groups can add up to, at the places they have in 128 bits.
void check_folding() {
  where = "folding";
  const uint64_t most = ~uint64_t{0};
  const uint64_t values[] = {0, 1, 0xffffffffu, uint64_t{1} << 32, most - 1, most};
  for (const uint64_t a : values) {
    for (const uint64_t b : values) {
      for (const uint64_t c : values) {
        uint64_t total[2] = {c, a ^ b};
        const WordSums sums = {{a, b, c, a}};
        fold_sums(sums, total);
        Sum expected;
        const uint64_t parts[][2] = {{c, a ^ b}, {a, 0}, {b << 32, b >> 32}, {0, c}, {0, a << 32}};
        for (const auto& part : parts) {
          expected.w[0] += part[0];
          expected.w[1] += part[1] + (expected.w[0] < part[0] ? 1 : 0);
        }
        check(total[0] == expected.w[0] && total[1] == expected.w[1], "a sum of 128 bits");
      }
    }
  }
}

}  // namespace

int main() {
  check_layouts();
  check_loops();
  check_folding();
  std::printf("%" PRId64 " checks passed on: %s\n", checks_passed, cpu_path().name);
  return 0;
}
