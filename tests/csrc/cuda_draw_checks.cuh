// Included by test_cuda.cu. Draws on the device against the functions of csrc/core: every
// distribution, every kernel, sizes and addresses that do not fit, launches that are cut.
#pragma once
#include <string>

#include "../../csrc/cuda/draw.cuh"
#include "cuda_checks.h"

namespace {

using namespace fastseed;

constexpr uint64_t kFarPosition = (uint64_t{1} << 34) - 6;  // words; its blocks cross 2^32

// Where a stream of the test stands.
struct Source {
  std::vector<uint64_t> keys;
  std::vector<int64_t> positions;  // or none
};

Source sources(int64_t rows, bool positions) {
  Source s;
  for (int64_t r = 0; r < rows; ++r) {
    const Key key = stream_key(Stream{{77, 5}, 3, 9}, static_cast<uint64_t>(r));
    s.keys.insert(s.keys.end(), {key.lo, key.hi});
    if (positions) {
      s.positions.push_back(r % 3 == 0 ? static_cast<int64_t>(kFarPosition) : 5 * r);
    }
  }
  return s;
}

// Value `index` of the draw of one row, by the core alone.
template <class D>
typename D::Value value_of(const D& d, Key key, uint64_t position, int64_t index) {
  constexpr int64_t kEach = 4 / D::kWords;
  const uint64_t block = first_block(position) + static_cast<uint64_t>(index / kEach);
  typename D::Value values[kEach];
  d(Drawn{draw_block(key, block), key, block}, values);
  return values[index % kEach];
}

template <class D>
void expect(const D& d, const Source& s, const Layout& layout, const typename D::Value* got) {
  const int64_t rows = static_cast<int64_t>(s.keys.size() / 2);
  for (int64_t row = 0; row < rows; ++row) {
    const size_t r = static_cast<size_t>(row);
    const Key key{s.keys[2 * r], s.keys[2 * r + 1]};
    const uint64_t position = s.positions.empty() ? 0 : static_cast<uint64_t>(s.positions[r]);
    for (int64_t run = 0; run < layout.runs; ++run) {
      for (int64_t i = 0; i < layout.length; ++i, ++got) {
        const typename D::Value want = value_of(d, key, position, layout.start(run) + i);
        if (std::memcmp(got, &want, sizeof(want)) != 0) {
          fail("value " + std::to_string(i) + " of run " + std::to_string(run) + " of row " +
               std::to_string(row));
        }
        ++checks_passed;
      }
    }
  }
}

// `most` items a launch, or 0: through the public entry.
template <class D>
void check_one(const D& d, int64_t rows, const Layout& layout, bool positions, int shift,
               int64_t most = 0) {
  where = "draw of " + std::to_string(rows) + " rows, " + std::to_string(layout.runs) +
          " runs of " + std::to_string(layout.length) + " from " + std::to_string(layout.offset) +
          ", shift " + std::to_string(shift) + ", words " + std::to_string(D::kWords) + ", bytes " +
          std::to_string(sizeof(typename D::Value)) + ", most " + std::to_string(most);
  const Source s = sources(rows, positions);
  DeviceArray<uint64_t> keys(s.keys);
  DeviceArray<int64_t> at(s.positions);
  DeviceArray<typename D::Value> out(rows * layout.runs * layout.length, shift);
  const Streams streams{keys.data(), positions ? at.data() : nullptr, rows};
  if (most == 0) {
    launch_draw(d, streams, layout, out.data(), CudaStream{});
  } else {
    draw_cuda(d, streams, layout, out.data(), CudaStream{}, most);
  }
  expect(d, s, layout, out.read());
}

Layout line(int64_t length, int64_t offset = 0) {
  return Layout{length, 1, offset, 0, {}, {}};
}

// (3, 2) runs of a logical tensor with the strides of its two outer dimensions.
Layout part(int64_t length, int64_t offset, int64_t outer, int64_t inner) {
  return Layout{length, 6, offset, 2, {3, 2}, {outer, inner}};
}

template <class D>
void check_shapes(const D& d) {
  constexpr int64_t kTile = Chunk<D>::kTile * Chunk<D>::kValues;
  set_multiprocessors(1);
  for (const int64_t n : {int64_t{1}, int64_t{7}, kTile - 1, kTile, kTile + 1, 2 * kTile + 37}) {
    check_one(d, 1, line(n), true, 0);
  }
  check_one(d, 1, line(kTile + 5, 3 * kTile), false, 0);  // a later part, of whole blocks
  check_one(d, 1, line(203, 5), true, 0);                 // not of whole blocks
  check_one(d, 1, line(203), true, 1);                    // not aligned
  for (const int64_t n : {1, 3, 4, 5, 8, 16, 48}) {
    check_one(d, 37, line(n), true, 0);
  }
  check_one(d, 5, line(64, 16), false, 0);
  check_one(d, 5, line(64), false, 1);
  check_one(d, 2, part(8, 0, 64, 24), true, 0);
  check_one(d, 2, part(9, 3, 65, 11), true, 0);
  check_one(d, 1, part(1, 1, 17, 5), false, 3);
  for (const int multiprocessors : {2, 7}) {
    set_multiprocessors(multiprocessors);
    check_one(d, 1, line(3 * kTile + 11), true, 0);
    check_one(d, 301, line(16), true, 0);
    check_one(d, 301, line(7), true, 0);
  }
}

// Launches of few items: rows and lines are cut where it takes several.
template <class D>
void check_cuts(const D& d) {
  set_multiprocessors(1);
  for (const int64_t most : {1, 3, 16}) {
    check_one(d, 7, line(32), true, 0, most);
    check_one(d, 7, line(33), true, 0, most);
    check_one(d, 1, line(33, 2), true, 0, most);
    check_one(d, 3, part(9, 3, 65, 11), true, 0, most);
  }
}

void check_dividers() {
  where = "Divider";
  for (const uint32_t d : {1u, 2u, 3u, 5u, 7u, 255u, 256u, 257u, 641u, 65537u, 0x3fffffffu,
                           0x40000000u, 0x40000001u, 0x7ffffffeu, 0x7fffffffu, 0x80000000u}) {
    const Divider divider(d);
    for (uint64_t n = 0; n < 0x80000000u; n = n < 1000 ? n + 1 : n + n / 61 + 1) {
      for (const uint64_t m : {n, n / d * d, n / d * d + d - 1, uint64_t{0x7fffffff} - n}) {
        if (m < 0x80000000u) {
          check(divider.quotient(static_cast<uint32_t>(m)) == m / d, "a quotient");
        }
      }
    }
  }
  const AnyDivider wide(3, int64_t{1} << 40);
  check(wide.quotient(int64_t{1} << 39) == (int64_t{1} << 39) / 3, "a large quotient");
}

template <class T>
void check_reals(T one) {
  using Real = RealOf<T>;
  check_shapes(Uniform<T>{Real(3.7), Real(-1.3), Real(2.25)});
  check_shapes(Normal<T>{Real(0.3), Real(1.7)});
  check_shapes(Normal<T>{Real(0), Real(1)});
  check_shapes(Exponential<T>{Real(0.4)});
  check_shapes(TruncNormal<T>{Real(0.5), Real(2), Real(0.25), Real(0.5), Real(0.5), Real(1e-7),
                              Real(-3), Real(4)});
  check_shapes(Bernoulli<T>{uint64_t{1} << 31, T{}, one});
}

template <class T, class Word>
void check_range(int64_t low, Word range) {
  check_shapes(RandInt<T, Word>{low, range, static_cast<Word>(0 - range) % range});
}

}  // namespace

inline void check_draws() {
  check_dividers();
  check_shapes(Bits<uint32_t>{});
  check_shapes(Bits<uint64_t>{});
  check_reals(1.0f);
  check_reals(1.0);
  check_reals(Half{0x3c00});
  check_reals(BFloat16{0x3f80});
  check_shapes(Bernoulli<uint8_t>{uint64_t{1} << 30, 0, 1});
  check_shapes(Bernoulli<uint8_t>{uint64_t{1} << 32, 0, 1});
  check_range<uint8_t, uint32_t>(3, 200);
  check_range<int32_t, uint32_t>(-5, 0xC0000001u);  // a quarter of the words is rejected
  check_range<int64_t, uint32_t>(-(int64_t{1} << 40), 0x80000001u);
  check_range<int64_t, uint64_t>(INT64_MIN, 0xC000000000000001u);
  check_cuts(Bits<uint32_t>{});
  check_cuts(Uniform<Half>{2.0f, -1.0f, 0.9990234375f});
}
