// Values of any type from and to the device's memory, several at a time.
#pragma once
#include <cstring>
#include <type_traits>

#include "../core/float16.h"
#include "device.cuh"

namespace fastseed {

// When what is stored (or loaded) is read (again): soon, by the next kernel, or later, so that it
// leaves the caches first.
enum class Read { kSoon, kLater };

template <Read kRead, class V>
FS_DEVICE void put(void* at, V value) {
  if constexpr (kRead == Read::kLater) {
    __stcs(static_cast<V*>(at), value);
  } else {
    __stwb(static_cast<V*>(at), value);  // an assignment would be several stores
  }
}

template <Read kRead = Read::kLater, class T>
FS_DEVICE void store_value(T* at, T value) {
  put<kRead>(at, bits_of(value));
}

// All of them, to an address of that alignment: 4, 8 or 16 bytes, or more in several stores.
template <Read kRead = Read::kLater, class T, int kCount>
FS_DEVICE void store_all(T* at, const T (&values)[kCount]) {
  constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  using V =
      std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 8, uint2, uint4>>;
#pragma unroll
  for (int i = 0; i < kBytes / static_cast<int>(sizeof(V)); ++i) {
    V v;
    std::memcpy(&v, reinterpret_cast<const char*>(values) + i * sizeof(V), sizeof(V));
    put<kRead>(reinterpret_cast<V*>(at) + i, v);
  }
}

// The same from an address that is a multiple of 16.
template <Read kRead = Read::kSoon, class T, int kCount>
FS_DEVICE void load_all(const T* at, T (&values)[kCount]) {
  constexpr int kEach = kVectorBytes / static_cast<int>(sizeof(T));
#pragma unroll
  for (int v = 0; v < kCount / kEach; ++v) {
    const uint4* from = reinterpret_cast<const uint4*>(at) + v;
    const uint4 words = kRead == Read::kLater ? __ldcs(from) : __ldca(from);
    std::memcpy(values + v * kEach, &words, kVectorBytes);
  }
}

// Which values of a block lie in a line of `length` values, of which the block's first is value
// `from`.
struct Inside {
  int64_t from, length;

  FS_DEVICE bool operator[](int i) const {
    return from + i >= 0 && from + i < length;
  }
  // Whether `count` values do, at an aligned address.
  FS_DEVICE bool all(int count, const void* at, int64_t bytes = kVectorBytes) const {
    return from >= 0 && from + count <= length && is_aligned(at, bytes);
  }
};

// Values of a block: by 16 bytes if all are inside, else one by one.
template <class T, int kCount>
FS_DEVICE void load_inside(const T* at, T (&values)[kCount], Inside inside, bool all) {
  if (all) {
    load_all(at, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = inside[i] ? at[i] : T{};
  }
}

template <Read kRead = Read::kLater, class T, int kCount>
FS_DEVICE void store_inside(T* at, const T (&values)[kCount], Inside inside, bool all) {
  if (all) {
    store_all<kRead>(at, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (inside[i]) {
      store_value<kRead>(at + i, values[i]);
    }
  }
}

}  // namespace fastseed
