// What is written alike for every vector type. The including file defines FS_TARGET, the attribute
// of its instruction set, and FS_VECTOR, its type of integers.
//
// In an anonymous namespace, as everything that one translation unit compiles for its own target.
#pragma once
#include <cstdint>
#include <cstring>

#define FS_LANES FS_TARGET __attribute__((always_inline)) inline
#include "../core/folded_philox.h"
#include "../core/mt19937.h"

namespace fastseed {
namespace {

// Lanes of 64 bits, which hold numbers, or words in their low halves.
struct CommonLanes64 {
  using Type = FS_VECTOR;
  using Word = Type;
  using Product = Type;
  using Numbers = uint64_t __attribute__((vector_size(sizeof(Type))));
  static constexpr int kLanes = sizeof(Type) / sizeof(uint64_t);

  static FS_LANES Type set(uint64_t v) {
    return reinterpret_cast<Type>(Numbers{} + v);
  }
  static FS_LANES Type load(const void* p) {
    Type v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static FS_LANES void store(void* p, Type v) {
    std::memcpy(p, &v, sizeof(v));
  }
  static FS_LANES Type count_from(uint64_t first) {
    constexpr uint64_t kCount[] = {0, 1, 2, 3, 4, 5, 6, 7};
    return add(set(first), load(kCount));
  }
  static FS_LANES Type add(Type a, Type b) {
    return reinterpret_cast<Type>(reinterpret_cast<Numbers>(a) + reinterpret_cast<Numbers>(b));
  }
  static FS_LANES Type subtract(Type a, Type b) {
    return reinterpret_cast<Type>(reinterpret_cast<Numbers>(a) - reinterpret_cast<Numbers>(b));
  }
  static FS_LANES Type shift_right_32(Type a) {
    return reinterpret_cast<Type>(reinterpret_cast<Numbers>(a) >> 32);
  }
  static FS_LANES Word high(Product p) {
    return shift_right_32(p);
  }
  static FS_LANES Word low(Product p) {
    return p;
  }
  static FS_LANES Type bit_and(Type a, Type b) {
    return a & b;
  }
  static FS_LANES Type bit_xor(Type a, Type b) {
    return a ^ b;
  }
  static FS_LANES int64_t words_to_aligned(const uint64_t* p) {
    return static_cast<int64_t>((-reinterpret_cast<uintptr_t>(p) & (sizeof(Type) - 1)) / 8);
  }
};

// FoldedKeys in all lanes.
template <class V>
struct LaneKeys {
  typename V::Word k0[kPhiloxRounds], k1[kPhiloxRounds];

  FS_LANES explicit LaneKeys(const FoldedKeys& k) {
    for (int r = 0; r < kPhiloxRounds; ++r) {
      k0[r] = V::set(k.k0[r]);
      k1[r] = V::set(k.k1[r]);
    }
  }
};

// Lanes of 32 bits.
struct CommonLanes32 {
  using Type = FS_VECTOR;
  using Numbers = uint32_t __attribute__((vector_size(sizeof(Type))));
  static constexpr int kLanes = sizeof(Type) / sizeof(uint32_t);

  // word j of a MT19937 state from the word before
  static FS_LANES Type next_word(Type before, uint32_t j) {
    const Numbers v = reinterpret_cast<Numbers>(before);
    return reinterpret_cast<Type>((v ^ (v >> 30)) * kMtInitMultiplier + j);
  }
};

}  // namespace
}  // namespace fastseed
