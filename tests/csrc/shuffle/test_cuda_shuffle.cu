// The CUDA kernel of the shuffle against the core and the known answers, without torch.
//
//   test_cuda_shuffle shuffle.txt     prints "N rows, M checks passed", or what fails
//
// A program of its own, and so in a folder of its own: those beside test_cuda.cu are linked with
// it.
#include <cinttypes>
#include <stdexcept>

#include "../cuda_checks.h"
#include "../shuffle_rows.h"

namespace {

using namespace fastseed;

std::vector<int64_t> by_the_kernel(const Shuffle& shuffle, const Positions& at, int shift) {
  DeviceArray<int64_t> out(at.count, shift);
  launch_shuffle(shuffle, at, out.data(), CudaStream{});
  const int64_t* found = out.read();
  return std::vector<int64_t>(found, found + at.count);
}

std::vector<int64_t> back_by_the_kernel(const Shuffle& shuffle, const std::vector<int64_t>& numbers,
                                        int shift) {
  const auto count = static_cast<int64_t>(numbers.size());
  DeviceArray<int64_t> in(numbers, shift), out(count, shift);
  launch_shuffle_positions(shuffle, in.data(), count, out.data(), CudaStream{});
  const int64_t* found = out.read();
  return std::vector<int64_t>(found, found + count);
}

void check_shapes() {
  each_shape([](const Shuffle& shuffle, const Positions& at) {
    std::vector<int64_t> expected;
    for (int64_t k = 0; k < at.count; ++k) {
      expected.push_back(shuffle_index(shuffle, at[k]));
    }
    for (const int multiprocessors : {1, 3}) {
      set_multiprocessors(multiprocessors);
      for (const int shift : {0, 1}) {
        check(by_the_kernel(shuffle, at, shift) == expected, "a number of the order");
        check(back_by_the_kernel(shuffle, expected, shift) == all_of(at), "a position");
        std::vector<int64_t> numbers = expected, positions = all_of(at);
        put_outside(shuffle.n, numbers, positions);
        check(back_by_the_kernel(shuffle, numbers, shift) == positions, "a position, or none");
      }
    }
  });
}

// Rows and columns of positions across the ends of rows, where a quotient would be wrong first.
void check_division() {
  for (int64_t n = kShuffleMost; n > 70000; n = n / 3 + 1) {
    const Shuffle shuffle = shuffle_of(Key{3, 4}, n);
    for (int64_t row = 1; row < shuffle.a; row += shuffle.a / 20 + 1) {
      const Positions at{row * shuffle.b - 1, 1, 2};
      if (at[1] >= n) {
        continue;
      }
      where = "n " + std::to_string(n) + ", row " + std::to_string(row);
      const std::vector<int64_t> found = by_the_kernel(shuffle, at, 0);
      for (int64_t k = 0; k < 2; ++k) {
        check(found[static_cast<size_t>(k)] == shuffle_index(shuffle, at[k]), "a number");
      }
      const std::vector<int64_t> back = back_by_the_kernel(shuffle, all_of(at), 0);
      for (int64_t k = 0; k < 2; ++k) {
        check(shuffle_index(shuffle, back[static_cast<size_t>(k)]) == at[k], "a position");
      }
    }
  }
}

void check_failure() {
#if !defined(__CUDACC__)
  where = "a launch that fails";
  shim_fails = true;
  bool said = false;
  int64_t out[2];
  try {
    launch_shuffle(shuffle_of(Key{1, 2}, 9), Positions{0, 1, 2}, out, CudaStream{});
  } catch (const std::runtime_error& error) {
    said = std::string(error.what()).find("fastseed.shuffle: ") == 0;
  }
  shim_fails = false;
  check(said, "fastseed.shuffle: and what CUDA says");
#endif
}

}  // namespace

int main(int argc, char** argv) {
  where = "the command line";
  if (argc != 2) {
    fail("one argument is needed: shuffle.txt");
  }
  const int rows = check_rows(
      argv[1], [](const Shuffle& s, const Positions& at) { return by_the_kernel(s, at, 0); },
      [](const Shuffle& s, const std::vector<int64_t>& numbers) {
        return back_by_the_kernel(s, numbers, 0);
      });
  check_shapes();
  check_division();
  check_failure();
  std::printf("%d rows, %" PRId64 " checks passed\n", rows, checks_passed);
  return 0;
}
