// Cuts dropout into rows, runs and whole blocks, for the loops of the instruction set in use.
#include "../core/dropout.h"

#include <algorithm>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kSame = 256;    // copies of a number at a time
constexpr uint64_t kChunk = 512;  // blocks at a time: their words stay in the cache
constexpr int64_t kMostNumbers = kDropoutEach * static_cast<int64_t>(kChunk);  // of drop_again

// `count` elements, of which each `repeats` neighbours have one number, as those of a channel. The
// first of them is element `skip` of the repetitions of index `first`.
template <class T>
void drop_repeated(const Dropout<T>& rule, const CpuPath& path, Key key, uint64_t first,
                   int64_t repeats, int64_t skip, int64_t count, const T* in, T* out) {
  const auto loop = std::get<DropoutLoop<T>>(path.dropout);
  alignas(64) uint16_t numbers[kDropoutEach * kChunk];
  alignas(64) uint16_t same[kSame];
  uint64_t left = 0;  // numbers that are there, from numbers[next] on
  uint64_t next = 0;
  for (int64_t done = 0; done < count; ++first, --left, ++next) {
    if (left == 0) {
      const uint64_t wanted = static_cast<uint64_t>((count - done) / repeats) + 2;
      const uint64_t block = first / kDropoutEach;
      const uint64_t blocks = std::min({wanted / kDropoutEach + 2, kChunk, kDropoutBlocks - block});
      fill_words(path, key, block, blocks, numbers);
      next = first % kDropoutEach;
      left = blocks * kDropoutEach - next;
    }
    const int64_t end = done + std::min(count - done, repeats - skip);
    std::fill_n(same, std::min(end - done, kSame), numbers[next]);
    for (; done < end; done += std::min(end - done, kSame)) {
      loop(rule, same, std::min(end - done, kSame), in + done, out + done);
    }
    skip = 0;
  }
}

// `count` elements of runs of `length` that all have the numbers from index `first` on. The first
// of them is element `skip` of a run.
template <class T>
void drop_again(const Dropout<T>& rule, const CpuPath& path, Key key, uint64_t first,
                int64_t length, int64_t skip, int64_t count, const T* in, T* out) {
  const auto loop = std::get<DropoutLoop<T>>(path.dropout);
  alignas(64) uint16_t numbers[kDropoutEach * (kChunk + 1)];
  const uint64_t block = first / kDropoutEach;
  const uint64_t wanted =
      (first % kDropoutEach + static_cast<uint64_t>(length) - 1) / kDropoutEach + 1;
  const uint64_t until_end = std::min(wanted, kDropoutBlocks - block);
  fill_words(path, key, block, until_end, numbers);
  if (until_end < wanted) {
    fill_words(path, key, 0, wanted - until_end, numbers + until_end * kDropoutEach);
  }
  const uint16_t* const all = numbers + first % kDropoutEach;
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(count - done, length - skip);
    loop(rule, all + skip, n, in + done, out + done);
    done += n;
    skip = 0;
  }
}

// `count` elements whose indices are those from `first` on, modulo 2^64.
template <class T>
void drop_run(const Dropout<T>& rule, const CpuPath& path, Key key, uint64_t first, int64_t count,
              const T* in, T* out) {
  for (int64_t done = 0; done < count; done += kMostNumbers) {
    const int64_t n = std::min(count - done, kMostNumbers);
    drop_again(rule, path, key, first + static_cast<uint64_t>(done), n, 0, n, in + done,
               out + done);
  }
}

// The elements of one stretch of a layout, whose first indices need no division.
struct Stretch {
  int64_t repeats = 1;  // neighbours with one number
  int64_t runs = 1;     // runs with the same numbers
  int64_t length;       // of all its elements

  explicit Stretch(const Layout& layout) : length(layout.length) {
    const int last = layout.dims - 1;
    if (last < 0 || layout.strides[last] != 0) {
      return;
    }
    if (layout.length > 1) {
      runs = layout.length <= kMostNumbers ? layout.sizes[last] : 1;
      length *= runs;
      return;
    }
    repeats = layout.sizes[last];
    length = repeats * (last > 0 && layout.strides[last - 1] == 1 ? layout.sizes[last - 1] : 1);
  }
};

}  // namespace

template <class T>
void launch_dropout(const Dropout<T>& rule, const DropoutKeys& keys, const Layout& layout,
                    const T* in, T* out, Range part) {
  const CpuPath& path = cpu_path();
  const Stretch stretch(layout);
  for (int64_t at = part.begin; at < part.end;) {
    const int64_t skip = at % stretch.length;
    const int64_t run = (at - skip) / layout.length;
    const int64_t count = std::min(part.end - at, stretch.length - skip);
    const DropoutKey row = keys.row(run / layout.runs, [](const uint64_t* word) { return *word; });
    const uint64_t first = row.first + static_cast<uint64_t>(layout.start(run % layout.runs));
    if (stretch.repeats > 1) {
      drop_repeated(rule, path, row.key, first + static_cast<uint64_t>(skip / stretch.repeats),
                    stretch.repeats, skip % stretch.repeats, count, in + at, out + at);
    } else if (stretch.runs > 1) {
      drop_again(rule, path, row.key, first, layout.length, skip % layout.length, count, in + at,
                 out + at);
    } else {
      drop_run(rule, path, row.key, first + static_cast<uint64_t>(skip), count, in + at, out + at);
    }
    at += count;
  }
}

void launch_layer_key(const uint64_t* scope, const int64_t* count, const LayerCall& call,
                      uint64_t* out, Range) {
  const DropoutKey made =
      layer_key(ScopeKey{scope[0], scope[1]}, call, static_cast<uint64_t>(*count));
  out[0] = made.key.lo;
  out[1] = made.key.hi;
  out[2] = made.first;
}

#define FS_INSTANTIATE(T)                                                                         \
  template void launch_dropout<T>(const Dropout<T>&, const DropoutKeys&, const Layout&, const T*, \
                                  T*, Range);
FS_EACH_REAL(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
