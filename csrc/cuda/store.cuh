// Values of any type from and to the device's memory, several at a time.
#pragma once
#include <cstring>

#include "../core/float16.h"
#include "device.cuh"

namespace fastseed {

// The bytes of a value as an unsigned number.
template <class T>
FS_HD uint64_t bits_of(T x) {
  if constexpr (sizeof(T) == 8) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof(x));
    return bits;
  } else if constexpr (sizeof(T) == 4) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(x));
    return bits;
  } else if constexpr (sizeof(T) == 2) {
    return x.bits;
  } else {
    return x;
  }
}

// When what is stored is read: soon, by the next kernel, or later, so that it leaves the caches
// first.
enum class Read { kSoon, kLater };

template <Read kRead, class V>
FS_DEVICE void put(void* at, V value) {
  if constexpr (kRead == Read::kLater) {
    __stcs(static_cast<V*>(at), value);
  } else {
    *static_cast<V*>(at) = value;
  }
}

template <Read kRead = Read::kLater, class T>
FS_DEVICE void store_value(T* at, T value) {
  const uint64_t bits = bits_of(value);
  if constexpr (sizeof(T) == 1) {
    put<kRead>(at, static_cast<unsigned char>(bits));
  } else if constexpr (sizeof(T) == 2) {
    put<kRead>(at, static_cast<unsigned short>(bits));
  } else if constexpr (sizeof(T) == 4) {
    put<kRead>(at, static_cast<unsigned int>(bits));
  } else {
    put<kRead>(at, static_cast<unsigned long long>(bits));
  }
}

// Word i of values that lie one after another in little-endian memory.
template <class T, int kCount>
FS_DEVICE uint32_t packed(const T (&values)[kCount], int i) {
  if constexpr (sizeof(T) == 8) {
    return static_cast<uint32_t>(bits_of(values[i / 2]) >> (i % 2 * 32));
  } else {
    constexpr int kEach = 4 / static_cast<int>(sizeof(T));
    uint32_t word = static_cast<uint32_t>(bits_of(values[kEach * i]));
#pragma unroll
    for (int k = 1; k < kEach; ++k) {
      word |= static_cast<uint32_t>(bits_of(values[kEach * i + k])) << (32 / kEach * k);
    }
    return word;
  }
}

// All of them, to an address of that alignment: 4, 8 or 16 bytes, or more in several stores.
template <Read kRead = Read::kLater, class T, int kCount>
FS_DEVICE void store_all(T* at, const T (&values)[kCount]) {
  constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  if constexpr (kBytes == 4) {
    put<kRead>(at, packed(values, 0));
  } else if constexpr (kBytes == 8) {
    put<kRead>(at, make_uint2(packed(values, 0), packed(values, 1)));
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; i += 4) {
      put<kRead>(reinterpret_cast<uint4*>(at) + i / 4,
                 make_uint4(packed(values, i), packed(values, i + 1), packed(values, i + 2),
                            packed(values, i + 3)));
    }
  }
}

template <class T>
FS_DEVICE T value_of(uint64_t bits) {
  T value;
  if constexpr (sizeof(T) == 2) {
    value.bits = static_cast<uint16_t>(bits);
  } else if constexpr (sizeof(T) == 4) {
    value = bits_float(static_cast<uint32_t>(bits));
  } else {
    value = bits_double(bits);
  }
  return value;
}

// The same from an address that is a multiple of 16.
template <class T, int kCount>
FS_DEVICE void load_all(const T* at, T (&values)[kCount]) {
  constexpr int kEach = kVectorBytes / static_cast<int>(sizeof(T));
#pragma unroll
  for (int v = 0; v < kCount / kEach; ++v) {
    const uint4 words = reinterpret_cast<const uint4*>(at)[v];
    const uint64_t halves[2] = {words.x | static_cast<uint64_t>(words.y) << 32,
                                words.z | static_cast<uint64_t>(words.w) << 32};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      values[v * kEach + i] = value_of<T>(halves[2 * i / kEach] >> (8 * sizeof(T) * i) % 64);
    }
  }
}

}  // namespace fastseed
