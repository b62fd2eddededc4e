// Noise added to numbers, and undone to the bit: docs/spec/perturb.md is the specification.
#pragma once
#include <cstdint>

#include "draw.h"
#include "dropout.h"
#include "strided_layout.h"

namespace fastseed {

// p + d rounded to T; p where that is not a number.
template <class T, class Real>
FS_HD T moved(T p, Real d) {
  const Real x = add(to_real(p), d);
  const T r = rounded<T>(x);
  return x == x ? r : p;
}

// The bits of a number as an integer that counts through all numbers in their order, and back.
template <class U>
FS_HD U in_order(U bits) {
  const U negative = static_cast<U>(U{0} - static_cast<U>(bits >> (8 * sizeof(U) - 1)));
  return static_cast<U>(bits ^ static_cast<U>(negative >> 1));
}

// The byte of a number that d moved: how far it was from where -d moves it to. Or one of these.
constexpr int8_t kListed = -128;   // farther: its bits are in a list
constexpr int8_t kUnmoved = -127;  // as far, and the list was full

template <class T, class Real>
FS_HD int8_t byte_of(T before, T after, Real d) {
  using U = Pattern<T>;
  const U step = static_cast<U>(in_order(bits_of(before)) - in_order(bits_of(moved(after, -d))));
  return static_cast<U>(step + 126) <= 253 ? static_cast<int8_t>(step) : kListed;
}

template <class T, class Real>
FS_HD T moved_back(T after, Real d, int8_t byte) {
  using U = Pattern<T>;
  const U step = static_cast<U>(static_cast<int16_t>(byte));
  const U order = static_cast<U>(in_order(bits_of(moved(after, -d))) + step);
  return byte == kUnmoved ? after : same_bits<T>(in_order(order));
}

// Element j of Rademacher noise: by bit j % 32 of word j / 32.
template <class Real>
FS_HD Real sign_of(uint32_t word, int bit) {
  return (word >> bit & 1u) == 0 ? Real(1) : Real(-1);
}

// What to do to a tensor: add all entries and store once; add one with bytes and a list that undo
// it; undo it, but for the numbers in the list. (Each of the operator: add, entry by entry.)
enum class Perturb : int64_t { kAdd, kEach, kRecord, kUndo };

// Entry e is scales[e] times the noise of key (keys[2 e], keys[2 e + 1]). The list is `capacity`
// rows of an index and the bits before, behind a row that counts them.
template <class T>
struct Perturbation {
  Perturb action;
  bool rademacher;
  int64_t entries;
  const uint64_t* keys;
  const double* scales;
  T* numbers;
  int8_t* bytes;
  int64_t* list;
  int64_t capacity;
};

template <class T>
void launch_perturb(const Perturbation<T>& what, const Layout& layout, Range part);
template <class T>
void launch_perturb(const Perturbation<T>& what, const Layout& layout, CudaStream cuda);

}  // namespace fastseed
