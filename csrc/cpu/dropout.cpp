// Cuts dropout into rows, runs and whole blocks, for the loops of the instruction set in use.
#include "dropout.h"

#include <algorithm>
#include <iterator>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr uint64_t kChunk = 512;  // blocks at a time: their words stay in the cache

// Words that CpuPath::blocks writes as halves of 64 bits, read as 16-bit numbers.
typedef uint64_t __attribute__((may_alias)) Pair;

void write_numbers(const CpuPath& path, Key key, uint64_t block, uint64_t blocks,
                   uint16_t* numbers) {
  const BlockRange range{key.lo, 0, static_cast<uint32_t>(key.hi),
                         static_cast<uint32_t>(key.hi >> 32), block};
  path.blocks(range, static_cast<int64_t>(blocks), reinterpret_cast<Pair*>(numbers),
              Stores::kCached);
}

// `count` elements whose indices are those from `first` on, modulo 2^64.
template <class T>
void drop_run(const Dropout<T>& rule, const CpuPath& path, Key key, uint64_t first, int64_t count,
              const T* in, T* out) {
  const auto loop = std::get<DropoutLoop<T>>(path.dropout);
  alignas(64) uint16_t numbers[kDropoutEach * kChunk];
  for (int64_t done = 0; done < count;) {
    const uint64_t at = first + static_cast<uint64_t>(done);
    const uint64_t skip = at % kDropoutEach;
    const uint64_t block = at / kDropoutEach;
    const uint64_t wanted =
        (skip + static_cast<uint64_t>(count - done) + kDropoutEach - 1) / kDropoutEach;
    const uint64_t blocks = std::min({wanted, kChunk, kDropoutBlocks - block});
    write_numbers(path, key, block, blocks, numbers);
    const int64_t n = std::min(count - done, static_cast<int64_t>(blocks * kDropoutEach - skip));
    loop(rule, numbers + skip, n, in + done, out + done);
    done += n;
  }
}

// `count` elements that all have the number of index `first`, as those of a channel.
template <class T>
void drop_together(const Dropout<T>& rule, const CpuPath& path, Key key, uint64_t first,
                   int64_t count, const T* in, T* out) {
  const auto loop = std::get<DropoutLoop<T>>(path.dropout);
  alignas(64) uint16_t numbers[kDropoutEach * kChunk];
  write_numbers(path, key, first / kDropoutEach, 1, numbers);
  const int64_t most = std::min(count, static_cast<int64_t>(std::size(numbers)));
  std::fill_n(numbers, most, numbers[first % kDropoutEach]);
  for (int64_t done = 0; done < count; done += most) {
    loop(rule, numbers, std::min(count - done, most), in + done, out + done);
  }
}

// How many neighbouring elements have one number: those along a last dimension of stride 0.
int64_t repeats_of(const Layout& layout) {
  const int last = layout.dims - 1;
  return layout.length == 1 && last >= 0 && layout.strides[last] == 0 ? layout.sizes[last] : 1;
}

}  // namespace

template <class T>
void launch_dropout(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                    int64_t begin, int64_t end, const T* in, T* out) {
  const CpuPath& path = cpu_path();
  const int64_t repeats = repeats_of(layout);
  const int64_t line = layout.length * repeats;
  for (int64_t at = begin; at < end;) {
    const int64_t run = at / layout.length;
    const int64_t skip = at % layout.length;
    const int64_t count = std::min(end - at, line - at % line);
    const DropoutKey row = keys.row(run / layout.runs, [](const uint64_t* word) { return *word; });
    const uint64_t first =
        row.first + static_cast<uint64_t>(layout.start(run % layout.runs) + skip);
    const auto drop = repeats == 1 ? drop_run<T> : drop_together<T>;
    drop(rule, path, row.key, first, count, in + at, out + at);
    at += count;
  }
}

#define FS_INSTANTIATE(T)                                                                        \
  template void launch_dropout<T>(const Dropout<T>&, const DropoutKeys&, const Layout&, int64_t, \
                                  int64_t, const T*, T*);
FS_EACH_DROPOUT(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
