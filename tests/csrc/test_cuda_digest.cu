// The CUDA kernel of digests against the core, without torch.
//
//   test_cuda_digest     prints "M checks passed", or what fails
#include <cinttypes>
#include <stdexcept>

#include "cuda_checks.h"
#include "digest_rows.h"

namespace {

using namespace fastseed;

// Layouts in the device's memory, their plan, and what is to come out.
class Job {
 public:
  void add(const RowLayout& layout) {
    const std::vector<uint8_t> bytes = bytes_of(layout);
    memory_.push_back(std::make_unique<DeviceArray<uint8_t>>(bytes, layout.shift));
    expected_.push_back(by_the_core(layout, bytes.data(), 0, layout.groups()));
    const std::vector<int64_t> words = layout.words(memory_.back()->data(), tiles_);
    plan_.insert(plan_.end(), words.begin(), words.end());
    tiles_ += (layout.groups() + kDigestTile - 1) / kDigestTile;
  }

  // In one launch, into sums that are not zero: they wrap round.
  void check_all() {
    const int64_t n = static_cast<int64_t>(expected_.size());
    const uint64_t before = ~uint64_t{0} - 2;
    DeviceArray<int64_t> plan(plan_);
    DeviceArray<uint64_t> sums(std::vector<uint64_t>(2 * expected_.size(), before), 2);
    launch_digest(DigestPlan{plan.data(), n, tiles_}, sums.data(), CudaStream{});
    const uint64_t* found = sums.read();
    for (size_t i = 0; i < expected_.size(); ++i) {
      const uint64_t low = expected_[i].w[0] + before;
      const uint64_t high = expected_[i].w[1] + before + (low < before ? 1 : 0);
      check(found[2 * i] == low && found[2 * i + 1] == high, "a sum");
    }
  }

 private:
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> memory_;
  std::vector<Sum> expected_;
  std::vector<int64_t> plan_;
  int64_t tiles_ = 0;
};

void check_layouts() {
  Job all;
  each_layout([&](const RowLayout& layout) {
    all.add(layout);
    where = layout.text();
    Job alone;
    alone.add(layout);
    set_multiprocessors(3);
    alone.check_all();
  });
  for (const int multiprocessors : {1, 7}) {
    where = "all layouts in one launch";
    set_multiprocessors(multiprocessors);
    all.check_all();
  }
  where = "no entries";
  Job().check_all();
}

// An entry that many blocks of threads share, and entries that one block has many of.
void check_shares() {
  set_multiprocessors(2);
  where = "a long entry among short ones";
  Job job;
  for (int i = 0; i < 40; ++i) {
    const int64_t row_bytes = i == 20 ? int64_t{16} * kDigestTile * 37 + 9 : 24 + i;
    job.add(RowLayout{static_cast<uint64_t>(i), row_bytes, 1, row_bytes, 0, 0, 0});
  }
  job.check_all();
}

void check_failure() {
#if !defined(__CUDACC__)
  where = "a launch that fails";
  bool said = false;
  shim_fails = true;
  try {
    Job job;
    job.add(RowLayout{1, 16, 1, 16, 0, 0, 0});
    job.check_all();
  } catch (const std::runtime_error& error) {
    said = std::string(error.what()).find("fastseed.digest: ") == 0;
  }
  shim_fails = false;
  check(said, "fastseed.digest: and what CUDA says");
  const int before = shim_launches;
  launch_digest(DigestPlan{}, nullptr, CudaStream{});
  check(shim_launches == before, "an empty launch");
#endif
}

}  // namespace

int main() {
  check_layouts();
  check_shares();
  check_failure();
  std::printf("%" PRId64 " checks passed\n", checks_passed);
  return 0;
}
