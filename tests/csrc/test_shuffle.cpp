// The shuffle on the CPU against the known answers and the core, without torch.
//
//   test_shuffle shuffle.txt     prints "N rows, M checks passed on: paths", or what fails
#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "../../csrc/core/derive.h"
#include "shuffle_rows.h"

namespace {

using namespace fastseed;

std::vector<int64_t> by_the_core(const Shuffle& shuffle, const Positions& at) {
  std::vector<int64_t> found;
  for (int64_t k = 0; k < at.count; ++k) {
    found.push_back(shuffle_index(shuffle, at[k]));
  }
  return found;
}

std::vector<int64_t> by_the_kernel(const Shuffle& shuffle, const Positions& at) {
  std::vector<int64_t> found(static_cast<size_t>(at.count), -1);
  launch_shuffle(shuffle, at, found.data(), Range{0, at.count});
  return found;
}

std::vector<int64_t> back_by_the_core(const Shuffle& shuffle, const std::vector<int64_t>& numbers) {
  std::vector<int64_t> found;
  for (const int64_t number : numbers) {
    found.push_back(shuffle_index<Way::kBackward>(shuffle, number));
  }
  return found;
}

std::vector<int64_t> back_by_the_kernel(const Shuffle& shuffle,
                                        const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  std::vector<int64_t> found(numbers.size(), -2);
  launch_shuffle_positions(shuffle, numbers.data(), count, found.data(), Range{0, count});
  return found;
}

// The inverse in one call and in two, in place and not, of numbers inside and outside.
void check_inverse(const Shuffle& shuffle, const Positions& at, std::vector<int64_t> numbers,
                   int shift) {
  std::vector<int64_t> expected = all_of(at);
  check(back_by_the_core(shuffle, numbers) == expected, "the core's inverse");
  for (const bool damaged : {false, true}) {
    if (damaged) {
      put_outside(shuffle.n, numbers, expected);
    }
    const int64_t cut = at.count * shift / 9;
    Poisoned<int64_t> out(at.count, shift);
    launch_shuffle_positions(shuffle, numbers.data(), at.count, out.data(), Range{0, cut});
    std::copy(numbers.begin() + cut, numbers.end(), out.data() + cut);
    launch_shuffle_positions(shuffle, out.data(), at.count, out.data(), Range{cut, at.count});
    check(std::equal(expected.begin(), expected.end(), out.data()), "a position");
    out.check_margins();
  }
}

// In one call and in two, at every alignment, between margins that must stay unchanged.
void check_shapes() {
  each_shape([](const Shuffle& shuffle, const Positions& at) {
    const std::vector<int64_t> expected = by_the_core(shuffle, at);
    for (int shift = 0; shift < 8; shift += 1 + (at.count > 100)) {
      const int64_t cut = at.count * shift / 9;
      Poisoned<int64_t> out(at.count, shift);
      launch_shuffle(shuffle, at, out.data(), Range{0, cut});
      launch_shuffle(shuffle, at, out.data(), Range{cut, at.count});
      check(std::equal(expected.begin(), expected.end(), out.data()), "a number of the order");
      out.check_margins();
      check_inverse(shuffle, at, expected, shift);
    }
  });
}

void check_bijections() {
  for (int64_t n = 1; n <= 300; ++n) {
    where = "the bijection of " + std::to_string(n);
    const uint64_t u = static_cast<uint64_t>(n);
    const Shuffle shuffle = shuffle_of(Key{u * 77, ~u}, n);
    std::vector<int64_t> found = by_the_kernel(shuffle, Positions{0, 1, n});
    check(back_by_the_kernel(shuffle, found) == all_of(Positions{0, 1, n}), "the inverse");
    std::sort(found.begin(), found.end());
    for (int64_t i = 0; i < n; ++i) {
      check(found[static_cast<size_t>(i)] == i, "every number comes once");
    }
  }
}

// The integer square root and the sides, where they change.
void check_sides() {
  for (int64_t s = 1; s <= int64_t{1} << 24; s = s < 300 ? s + 1 : s + s / 97) {
    for (const int64_t n : {s * s - 1, s * s, s * s + 1}) {
      if (n < 1 || n > kShuffleMost) {
        continue;
      }
      where = "the sides of " + std::to_string(n);
      const int64_t side = square_side(n);
      check(side * side >= n && (side - 1) * (side - 1) < n, "the side of a square");
      const Shuffle shuffle = shuffle_of(Key{1, 2}, n);
      const int64_t a = shuffle.a, b = shuffle.b;
      check(a % 2 == 0 && a >= 4 && b >= 4, "sides of at least 4, the first even");
      check(a <= int64_t{1} << 24 && b <= int64_t{1} << 24, "sides that fit");
      check(a * b >= n && a * b < n + square_side(n) + 16, "hardly more cells than numbers");
      check(shuffle.rounds == (n <= 65536 ? 24 : 12), "rounds");
    }
  }
}

// Every number of steps that the loops take from a position to its row and column.
void check_large_positions() {
  const Key key{3, 4};
  for (int64_t n = kShuffleMost; n > 70000; n = n / 3 + 1) {
    const Shuffle shuffle = shuffle_of(key, n);
    for (int64_t row = 1; row < shuffle.a; row += shuffle.a / 50 + 1) {
      const int64_t first = row * shuffle.b - 3;  // across the end of a row
      if (first + 9 >= n) {
        continue;
      }
      where = "n " + std::to_string(n) + ", position " + std::to_string(first);
      const Positions at{first, 1, 9};
      const std::vector<int64_t> found = by_the_kernel(shuffle, at);
      check(by_the_core(shuffle, at) == found, "a number of the order");
      check(back_by_the_kernel(shuffle, found) == all_of(at), "a position");
      check(back_by_the_kernel(shuffle, all_of(at)) == back_by_the_core(shuffle, all_of(at)),
            "a position of a number at the end of a row");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  where = "the command line";
  if (argc != 2) {
    fail("one argument is needed: shuffle.txt");
  }
  const int rows = check_rows(argv[1], by_the_core, back_by_the_core);
  check_sides();
  std::string paths;
  for (const std::string& path : simd_paths()) {
    set_simd_path(path);
    check_rows(argv[1], by_the_kernel, back_by_the_kernel);
    check_shapes();
    check_bijections();
    check_large_positions();
    paths += " " + path;
  }
  std::printf("%d rows, %" PRId64 " checks passed on:%s\n", rows, checks_passed, paths.c_str());
  return 0;
}
