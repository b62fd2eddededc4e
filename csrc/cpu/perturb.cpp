// Cuts perturbations into chunks that stay in the cache with their noise.
#include "../kernels/perturb.h"

#include <algorithm>
#include <type_traits>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kChunk = 2048;

// Numbers at to at + n - 1 of a tensor, of which there are at most kChunk.
template <class T>
class Chunk {
 public:
  using Real = typename Compute<T>::Type;

  Chunk(const Perturbation<T>& what, const Layout& layout) : what_(what), layout_(layout) {}

  void run(int64_t at, int64_t n) {
    T* const p = what_.numbers + at;
    int8_t* const bytes = what_.bytes == nullptr ? nullptr : what_.bytes + at;
    const bool widened =
        !std::is_same_v<T, Real> && what_.mode == PerturbMode::kAdd && what_.entries > 1;
    if (widened) {
      loops_.widen(p, n, sums_);
    }
    for (int64_t e = 0; e < what_.entries; ++e) {
      const Real scale = static_cast<Real>(what_.scales[e]);
      const Key key{what_.keys[2 * e], what_.keys[2 * e + 1]};
      const Real* z = what_.rademacher ? signs(key, at, n) : normals(key, at, n);
      if (what_.mode == PerturbMode::kUndo) {
        loops_.undo(z, scale, n, bytes, p);
      } else if (what_.mode == PerturbMode::kRecord) {
        if (loops_.record(z, scale, n, p, moved_, bytes)) {
          list(at, n, p, bytes);
        }
        std::copy_n(moved_, n, p);
      } else if (widened) {
        real_loops_.add(z, scale, n, sums_);
      } else {
        loops_.add(z, scale, n, p);
      }
    }
    if (widened) {
      loops_.narrow(sums_, n, p);
    }
  }

 private:
  const Real* normals(Key key, int64_t at, int64_t n) {
    const uint64_t words[2] = {key.lo, key.hi};
    launch_draw(Normal<Real>{0, 1}, Streams{words, nullptr, 1}, layout_, at, at + n, noise_ - at);
    return noise_;
  }

  const Real* signs(Key key, int64_t at, int64_t n) {
    const uint64_t words[2] = {key.lo, key.hi};
    uint32_t drawn[kChunk / 32 + 1];
    for (int64_t done = 0; done < n;) {
      const int64_t skip = (at + done) % layout_.length;
      const int64_t first = layout_.start((at + done) / layout_.length) + skip;
      const int64_t count = std::min(n - done, layout_.length - skip);
      const int64_t bit = first % 32;
      const int64_t needed = (bit + count + 31) / 32;
      launch_draw(Bits<uint32_t>{}, Streams{words, nullptr, 1},
                  Layout{needed, 1, first / 32, 0, {}, {}}, 0, needed, drawn);
      if (bit == 0 && count == n) {
        loops_.signs(drawn, needed, noise_);
        return noise_;
      }
      loops_.signs(drawn, needed, signs_);
      std::copy_n(signs_ + bit, count, noise_ + done);
      done += count;
    }
    return noise_;
  }

  // Lists the numbers that a byte does not undo; those for which there is no room stay.
  void list(int64_t at, int64_t n, const T* p, int8_t* bytes) {
    for (int64_t i = 0; i < n; ++i) {
      if (bytes[i] != kListed) {
        continue;
      }
      const int64_t row = __atomic_add_fetch(what_.list, 1, __ATOMIC_RELAXED);
      if (row <= what_.capacity) {
        what_.list[2 * row] = at + i;
        what_.list[2 * row + 1] = static_cast<int64_t>(pattern_of(p[i]));
      } else {
        moved_[i] = p[i];
        bytes[i] = kUnmoved;
      }
    }
  }

  const Perturbation<T>& what_;
  const Layout& layout_;
  const PerturbLoopsOf<T>& loops_ = std::get<PerturbLoopsOf<T>>(cpu_path().perturb);
  const PerturbLoopsOf<Real>& real_loops_ = std::get<PerturbLoopsOf<Real>>(cpu_path().perturb);
  alignas(64) Real noise_[kChunk + 32];
  alignas(64) Real signs_[kChunk + 64];
  alignas(64) Real sums_[kChunk];
  alignas(64) T moved_[kChunk];
};

}  // namespace

template <class T>
void launch_perturb(const Perturbation<T>& what, const Layout& layout, int64_t begin, int64_t end) {
  Chunk<T> chunk(what, layout);
  for (int64_t at = begin; at < end;) {
    const int64_t n = std::min(end - at, kChunk - at % kChunk);
    chunk.run(at, n);
    at += n;
  }
}

#define FS_INSTANTIATE(T) \
  template void launch_perturb<T>(const Perturbation<T>&, const Layout&, int64_t, int64_t);
FS_EACH_PERTURBED(FS_INSTANTIATE)
#undef FS_INSTANTIATE

}  // namespace fastseed
