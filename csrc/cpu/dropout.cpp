// Cuts dropout into rows, runs and whole blocks, for the loops of the instruction set in use.
#include "dropout.h"

#include <algorithm>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kChunk = 512;  // blocks at a time: their words stay in the cache

// The elements of a tensor whose indices are `first` to `last` - 1.
template <class T>
void drop_run(const Dropout<T>& rule, const CpuPath& path, Key key, uint64_t first, uint64_t last,
              const T* in, T* out) {
  const auto loop = std::get<DropoutLoop<T>>(path.dropout);
  // Words that CpuPath::blocks writes as halves of 64 bits, read as 16-bit numbers.
  typedef uint64_t __attribute__((may_alias)) Pair;
  alignas(64) uint16_t numbers[kDropoutEach * kChunk];
  constexpr uint64_t kEach = kDropoutEach;
  for (uint64_t at = first; at < last;) {
    const uint64_t block = at / kEach;
    const uint64_t blocks = std::min<uint64_t>((last - 1) / kEach - block + 1, kChunk);
    const BlockRange range{key.lo, 0, static_cast<uint32_t>(key.hi),
                           static_cast<uint32_t>(key.hi >> 32), block};
    path.blocks(range, static_cast<int64_t>(blocks), reinterpret_cast<Pair*>(numbers),
                Stores::kCached);
    const uint64_t end = std::min(last, (block + blocks) * kEach);
    loop(rule, numbers + at % kEach, static_cast<int64_t>(end - at), in + (at - first),
         out + (at - first));
    at = end;
  }
}

}  // namespace

template <class T>
void launch_dropout(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                    int64_t begin, int64_t end, const T* in, T* out) {
  const CpuPath& path = cpu_path();
  for (int64_t at = begin; at < end;) {
    const int64_t run = at / layout.length;
    const int64_t skip = at % layout.length;
    const int64_t count = std::min(end - at, layout.length - skip);
    const DropoutKey row = keys.row(run / layout.runs, [](const uint64_t* word) { return *word; });
    const uint64_t first =
        row.first + static_cast<uint64_t>(layout.start(run % layout.runs) + skip);
    drop_run(rule, path, row.key, first, first + static_cast<uint64_t>(count), in + at, out + at);
    at += count;
  }
}

#define FS_INSTANTIATE(T)                                                                        \
  template void launch_dropout<T>(const Dropout<T>&, const DropoutKeys&, const Layout&, int64_t, \
                                  int64_t, const T*, T*);
FS_EACH_DROPOUT(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
