// The draws in plain C++.
#include "draws.h"

namespace fastseed {
namespace {

// Values first to last - 1 of a stream's draw, one block at a time.
template <class D>
void draw_values(const D& distribution, Key key, uint64_t block, int64_t first, int64_t last,
                 typename D::Value* out) {
  constexpr int64_t kPerBlock = 4 / D::kWords;
  for (int64_t b = first / kPerBlock; b * kPerBlock < last; ++b) {
    const uint64_t place = block + static_cast<uint64_t>(b);
    typename D::Value values[kPerBlock];
    distribution(Drawn{draw_block(key, place), key, place}, values);
    for (int64_t i = 0; i < kPerBlock; ++i) {
      const int64_t j = b * kPerBlock + i;
      if (j >= first && j < last) {
        out[j - first] = values[i];
      }
    }
  }
}

}  // namespace

template <class D>
void launch_draw(const D& distribution, const Streams& streams, const Layout& layout, int64_t begin,
                 int64_t end, typename D::Value* out) {
  for (int64_t at = begin; at < end;) {
    const int64_t run = at / layout.length;
    const int64_t skip = at % layout.length;
    const int64_t row = run / layout.runs;
    const int64_t count = end - at < layout.length - skip ? end - at : layout.length - skip;
    const int64_t first = layout.start(run % layout.runs) + skip;
    const uint64_t position =
        streams.positions == nullptr ? 0 : static_cast<uint64_t>(streams.positions[row]);
    draw_values(distribution, Key{streams.keys[2 * row], streams.keys[2 * row + 1]},
                first_block(position), first, first + count, out + at);
    at += count;
  }
}

#define FS_INSTANTIATE(D)                                                                 \
  template void launch_draw<D>(const D&, const Streams&, const Layout&, int64_t, int64_t, \
                               D::Value*);
FS_EACH_DISTRIBUTION(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
