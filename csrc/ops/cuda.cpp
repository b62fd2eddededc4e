// The operators on CUDA devices: arguments checked, then one launch on the current stream. None but
// `digest`, which copies a table to the device, waits for the device: a graph may capture the
// others. Schemas are in fastseed/_backend/ops.
#if !defined(USE_CUDA)
#define USE_CUDA  // torch's header then declares aoti_torch_get_current_cuda_stream
#endif
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <type_traits>

#include "../core/derive.h"
#include "../core/device.h"
#include "digest_args.h"
#include "draw_ops.h"
#include "dropout_ops.h"
#include "exact_sum_args.h"
#include "key_ops.h"
#include "perturb_ops.h"
#include "sampling_ops.h"
#include "shuffle_ops.h"

namespace fastseed {
namespace {

// Under an older driver no launch would work: torch must have no operator of these then.
bool is_driver_too_old() {
  const int driver = cuda_driver_version();
  return driver != 0 && driver < cuda_runtime_version();
}

// While it lives, the device of a tensor is the current one of torch; that of the runtime which the
// kernels are linked with is set each time, and nobody else reads it.
class OnDevice {
 public:
  explicit OnDevice(const Tensor& tensor) : guard_(tensor.get_device_index()) {
    use_cuda_device(tensor.get_device_index(), "cuda");
    const AOTITorchError error =
        aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream_);
    STD_TORCH_CHECK(error == AOTI_TORCH_SUCCESS, "fastseed: torch names no current CUDA stream");
  }

  void* stream() const {
    return stream_;
  }

 private:
  torch::stable::accelerator::DeviceGuard guard_;
  void* stream_ = nullptr;
};

struct Cuda {
  static auto drawing(const Tensor& out, const Tensor& keys, const std::optional<Tensor>& positions,
                      const Part& part, const char* op) {
    const Streams streams = streams_of(out, keys, positions, op);
    const Layout layout =
        layout_of(out.numel(), streams.count, part.sizes, part.strides, part.offset, op);
    return [=, &out](const auto& distribution, auto* data) {
      check_words(distribution, layout, op);
      mark_written(out);
      const OnDevice device(out);
      launch_draw_cuda(distribution, streams, layout, data, device.stream());
    };
  }

  static StreamAt stream_at(const Tensor& scope, const Name& name, const StreamWords& at) {
    return StreamAt{words_of(scope), name, at.rank_word, at.worker};
  }

  static void keys(const Tensor& out, const Stream& stream, uint64_t start) {
    const OnDevice device(out);
    launch_derive_keys_cuda(stream, start, out.size(0), words_of(out), device.stream());
  }

  static void seeds(const Tensor& out, const Stream& stream, uint64_t start) {
    const OnDevice device(out);
    launch_derive_seeds_cuda(stream, start, out.size(0), words_of(out), device.stream());
  }

  template <class S>  // a Stream, or a StreamAt
  static void reseed(const Tensor& keys, const Tensor& positions, const S& stream, uint64_t start) {
    const OnDevice device(keys);
    launch_reseed_cuda(stream, start, keys.size(0), words_of(keys), longs_of(positions),
                       device.stream());
  }

  static void reseed_from(const Tensor& keys, const Tensor& positions, const uint64_t* seeds,
                          const int64_t* indices, const Name& name) {
    const OnDevice device(keys);
    launch_reseed_from_cuda(seeds, indices, name, keys.size(0), words_of(keys), longs_of(positions),
                            device.stream());
  }

  template <class T>
  static void drop(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                   const T* in, T* out, const Tensor& tensor) {
    const OnDevice device(tensor);
    launch_dropout_cuda(rule, keys, layout, in, out, device.stream());
  }

  template <class T>
  static void perturb(const Perturbation<T>& what, const Layout& layout, const Tensor& tensor) {
    const OnDevice device(tensor);
    launch_perturb_cuda(what, layout, device.stream());
  }

  static void shuffle(const Shuffle& order, const Positions& at, const Tensor& out) {
    const OnDevice device(out);
    launch_shuffle_cuda(order, at, longs_of(out), device.stream());
  }

  static void shuffle_positions(const Shuffle& order, const int64_t* numbers, const Tensor& out) {
    const OnDevice device(out);
    launch_shuffle_positions_cuda(order, numbers, out.size(0), longs_of(out), device.stream());
  }

  template <class T>
  static void race(const NumberRows<T>& numbers, const RaceRows& races, const WinnersOut& out,
                   const Tensor& tensor) {
    const OnDevice device(tensor);
    launch_race_cuda(numbers, races, out, device.stream());
  }

  template <class T>
  static void threshold(const NumberRows<T>& numbers, const ThresholdRows& rows,
                        const Tensor& out) {
    const OnDevice device(out);
    const int64_t together = std::min(numbers.rows, kThresholdRows);
    const Tensor scratch = torch::stable::new_empty(out, {together * kThresholdScratch});
    launch_threshold_cuda(numbers, rows, longs_of(scratch), device.stream());
  }

  static void layer_key(uint64_t* out, const uint64_t* scope, const int64_t* count,
                        const LayerCall& call, const Tensor& tensor) {
    const OnDevice device(tensor);
    launch_layer_key_cuda(scope, count, call, out, device.stream());
  }
};

// One launch for all tensors, by a table whose addresses come from the tensors themselves.
void digest(const Tensor& sums, std::vector<Tensor> memory, const Tensor& plan) {
  const std::vector<DigestEntry> entries = digest_entries(sums, memory, plan);
  const auto count = static_cast<int64_t>(memory.size());
  const Tensor table = torch::stable::new_empty(plan, {count, kDigestColumns});
  int64_t* row = longs_of(table);
  int64_t tiles = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto& [key, rows, begin] = entries[static_cast<size_t>(i)];
    const int64_t columns[kDigestColumns] = {
        static_cast<int64_t>(key),
        static_cast<int64_t>(reinterpret_cast<intptr_t>(rows.bytes)),
        rows.row_bytes,
        rows.rows,
        rows.stride,
        static_cast<int64_t>(rows.group_number),
        static_cast<int64_t>(rows.group_stride),
        tiles};
    row = std::copy(std::begin(columns), std::end(columns), row);
    tiles += (groups_of(rows) + kDigestTile - 1) / kDigestTile;
  }
  mark_written(sums);
  const OnDevice device(sums);
  Tensor there = torch::stable::new_empty(sums, {count, kDigestColumns}, Dtype::Long);
  torch::stable::copy_(there, table);
  launch_digest_cuda(longs_of(there), count, tiles, words_of(sums), device.stream());
}

// Launches of tensors of one dtype, each of as many values as limbs have room for.
template <class T>
class ExactLaunches {
 public:
  ExactLaunches(int64_t* total, void* stream) : total_(total), stream_(stream) {}

  void add(const T* values, const T* factors, int64_t n) {
    for (int64_t at = 0; at < n;) {
      if (table_.count == kMostExactParts || room_ == 0) {
        flush();
      }
      const int64_t size = std::min(n - at, room_);
      const int i = table_.count++;
      table_.values[i] = values + at;
      table_.factors[i] = factors == nullptr ? nullptr : factors + at;
      table_.sizes[i] = size;
      room_ -= size;
      at += size;
    }
  }

  void flush() {
    if (table_.count > 0) {
      launch_exact_sum_cuda(table_, total_, stream_);
    }
    table_.count = 0;
    room_ = kMostUncarried;
  }

 private:
  int64_t* total_;
  void* stream_;
  int64_t room_ = kMostUncarried;
  ExactTable<T> table_ = {};
};

void exact_sum(const Tensor& total, std::vector<Tensor> values, std::vector<Tensor> factors) {
  check_exact_sum(total, values, factors);
  mark_written(total);
  const OnDevice device(total);
  std::tuple<ExactLaunches<float>, ExactLaunches<double>, ExactLaunches<Half>,
             ExactLaunches<BFloat16>>
      launches{{longs_of(total), device.stream()},
               {longs_of(total), device.stream()},
               {longs_of(total), device.stream()},
               {longs_of(total), device.stream()}};
  int64_t count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    count += values[i].numel();
    for_terms(values[i], factors, i, [&](const auto* numbers, const auto* others) {
      using T = std::remove_cv_t<std::remove_pointer_t<decltype(numbers)>>;
      std::get<ExactLaunches<T>>(launches).add(numbers, others, values[i].numel());
    });
  }
  std::apply([](auto&... each) { (each.flush(), ...); }, launches);
  if (count == 0) {  // each call carries
    launch_exact_sum_cuda(ExactTable<float>{}, longs_of(total), device.stream());
  }
}

}  // namespace
}  // namespace fastseed

// For fastseed/_backend/native.py, which says why nothing is registered.
extern "C" __attribute__((visibility("default"))) int fastseed_cuda_driver() {
  return fastseed::cuda_driver_version();
}
extern "C" __attribute__((visibility("default"))) int fastseed_cuda_runtime() {
  return fastseed::cuda_runtime_version();
}

STABLE_TORCH_LIBRARY_IMPL(fastseed, CUDA, m) {
  using namespace fastseed;
  if (is_driver_too_old()) {
    return;
  }
  FS_REGISTER_DRAWS(m, Cuda);
  FS_REGISTER_KEYS(m, Cuda);
  FS_REGISTER_DROPOUT(m, Cuda);
  FS_REGISTER_SAMPLING(m, Cuda);
  FS_REGISTER_SHUFFLE(m, Cuda);
  m.impl("digest", TORCH_BOX(&fastseed::digest));
  m.impl("exact_sum", TORCH_BOX(&fastseed::exact_sum));
  m.impl("perturb", TORCH_BOX(&fastseed::perturb<Cuda>));
}
