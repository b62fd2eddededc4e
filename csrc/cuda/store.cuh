// Values of any type to the device's memory, several at a time.
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

template <class T>
FS_DEVICE void store_value(T* at, T value) {
  const uint64_t bits = bits_of(value);
  if constexpr (sizeof(T) == 1) {
    __stcs(reinterpret_cast<unsigned char*>(at), static_cast<unsigned char>(bits));
  } else if constexpr (sizeof(T) == 2) {
    __stcs(reinterpret_cast<unsigned short*>(at), static_cast<unsigned short>(bits));
  } else if constexpr (sizeof(T) == 4) {
    __stcs(reinterpret_cast<unsigned int*>(at), static_cast<unsigned int>(bits));
  } else {
    __stcs(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(bits));
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
template <class T, int kCount>
FS_DEVICE void store_all(T* at, const T (&values)[kCount]) {
  constexpr int kBytes = kCount * static_cast<int>(sizeof(T));
  if constexpr (kBytes == 4) {
    __stcs(reinterpret_cast<unsigned int*>(at), packed(values, 0));
  } else if constexpr (kBytes == 8) {
    __stcs(reinterpret_cast<uint2*>(at), make_uint2(packed(values, 0), packed(values, 1)));
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; i += 4) {
      __stcs(reinterpret_cast<uint4*>(at) + i / 4,
             make_uint4(packed(values, i), packed(values, i + 1), packed(values, i + 2),
                        packed(values, i + 3)));
    }
  }
}

}  // namespace fastseed
