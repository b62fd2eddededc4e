// Noise added to numbers, and undone to the bit: docs/spec/perturb.md is the specification.
#pragma once
#include <cstdint>
#include <cstring>

#include "draw.h"
#include "dropout.h"

namespace fastseed {

// p + d rounded to T; p where that is not a number.
template <class T, class Real>
FS_HD T moved(T p, Real d) {
  const Real x = add(to_real(p), d);
  const T r = Rounded<T>::of(x);
  return x == x ? r : p;
}

template <int kBytes>
struct Unsigned {
  using Type = uint16_t;
};
template <>
struct Unsigned<4> {
  using Type = uint32_t;
};
template <>
struct Unsigned<8> {
  using Type = uint64_t;
};

// The bits of a number as an integer that counts through all numbers in their order, and back.
template <class U>
FS_HD U in_order(U bits) {
  constexpr int kSign = 8 * static_cast<int>(sizeof(U)) - 1;
  const U negative = static_cast<U>(U{0} - static_cast<U>(bits >> kSign));
  return static_cast<U>(bits ^ static_cast<U>(negative >> 1));
}
template <class T, class U = typename Unsigned<sizeof(T)>::Type>
FS_HD U pattern_of(T x) {
  U bits;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}
template <class T>
FS_HD auto order_of(T x) {
  return in_order(pattern_of(x));
}
template <class T, class U>
FS_HD T number_at(U order) {
  const U bits = in_order(order);
  T x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// The byte of a number that d moved: how far it was from where -d moves it back to. Or one of
// these.
constexpr int8_t kListed = -128;   // farther: its bits are in a list
constexpr int8_t kUnmoved = -127;  // as far, and the list was full

template <class T, class Real>
FS_HD int8_t byte_of(T before, T after, Real d) {
  using U = typename Unsigned<sizeof(T)>::Type;
  const U step = static_cast<U>(order_of(before) - order_of(moved(after, -d)));
  return static_cast<U>(step + 126) <= 253 ? static_cast<int8_t>(step) : kListed;
}

template <class T, class Real>
FS_HD T moved_back(T after, Real d, int8_t byte) {
  using U = typename Unsigned<sizeof(T)>::Type;
  const U step = static_cast<U>(static_cast<int16_t>(byte));
  const T before = number_at<T>(static_cast<U>(order_of(moved(after, -d)) + step));
  return byte == kUnmoved ? after : before;
}

// Element j of Rademacher noise is 1 or -1 by bit j % 32 of word j / 32.
template <class Real>
FS_HD Real sign_of(uint32_t word, int bit) {
  return (word >> bit & 1u) == 0 ? Real(1) : Real(-1);
}

}  // namespace fastseed
