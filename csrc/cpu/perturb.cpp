// Cuts perturbations into runs that stay in the cache with their noise.
#include "../core/perturb.h"

#include <algorithm>
#include <type_traits>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kChunk = 2048;

// Lists the numbers that a byte does not undo; those for which there is no room stay.
template <class T>
void list_far(const Perturbation<T>& what, int64_t at, int64_t n, T* out) {
  for (int64_t i = at; i < at + n; ++i) {
    if (what.bytes[i] != kListed) {
      continue;
    }
    const int64_t row = __atomic_add_fetch(what.list, 1, __ATOMIC_RELAXED);
    if (row <= what.capacity) {
      what.list[2 * row] = i;
      what.list[2 * row + 1] = static_cast<int64_t>(bits_of(what.numbers[i]));
    } else {
      out[i - at] = what.numbers[i];
      what.bytes[i] = kUnmoved;
    }
  }
}

}  // namespace

template <class T>
void launch_perturb(const Perturbation<T>& what, const Layout& layout, Range part) {
  using Real = RealOf<T>;
  const auto& loops = std::get<PerturbLoopsOf<T>>(cpu_path().perturb);
  const auto& loops_of_sums = std::get<PerturbLoopsOf<Real>>(cpu_path().perturb);
  const bool is_added = what.action == Perturb::kAdd;
  const bool is_summed = is_added && what.entries > 1 && !std::is_same_v<T, Real>;
  alignas(64) Real z[kChunk], sums[kChunk];
  alignas(64) T out[kChunk];
  alignas(64) uint32_t words[kChunk / 32 + 1];
  for (int64_t at = part.begin, n; at < part.end; at += n) {
    const int64_t skip = at % layout.length;
    const int64_t first = layout.start(at / layout.length) + skip;
    n = std::min({part.end - at, layout.length - skip, kChunk - first % kChunk});
    T* const p = what.numbers + at;
    if (is_summed) {
      std::transform(p, p + n, sums, [](T x) { return to_real(x); });
    }
    for (int64_t e = 0; e < what.entries; ++e) {
      const Real scale = static_cast<Real>(what.scales[e]);
      const Streams key{what.keys + 2 * e, nullptr, 1};
      const int64_t bit = first % 32;
      if (what.rademacher) {
        const int64_t needed = (bit + n + 31) / 32;
        const Layout bits{needed, 1, first / 32, 0, {}, {}};
        launch_draw(Bits<uint32_t>{}, key, bits, words, Range{0, needed});
      } else {
        launch_draw(Normal<Real>{0, 1}, key, Layout{n, 1, first, 0, {}, {}}, z, Range{0, n});
      }
      if (what.rademacher && is_added && bit == 0) {
        is_summed ? loops_of_sums.add_signs(words, scale, n, sums)
                  : loops.add_signs(words, scale, n, p);
        continue;
      }
      for (int64_t i = 0; i < n && what.rademacher; ++i) {
        z[i] = sign_of<Real>(words[(bit + i) / 32], static_cast<int>((bit + i) % 32));
      }
      if (what.action == Perturb::kUndo) {
        loops.undo(z, scale, n, what.bytes + at, p);
      } else if (what.action == Perturb::kRecord) {
        if (loops.record(z, scale, n, p, out, what.bytes + at)) {
          list_far(what, at, n, out);
        }
        std::copy_n(out, n, p);
      } else {
        is_summed ? loops_of_sums.add(z, scale, n, sums) : loops.add(z, scale, n, p);
      }
    }
    for (int64_t i = 0; i < n && is_summed; ++i) {
      p[i] = sums[i] == sums[i] ? rounded<T>(sums[i]) : p[i];
    }
  }
}

#define FS_INSTANTIATE(T) \
  template void launch_perturb<T>(const Perturbation<T>&, const Layout&, Range);
FS_EACH_REAL(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
