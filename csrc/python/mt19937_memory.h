// What the generators of Python and NumPy look like in memory, at the addresses that the Python
// side found and verified.
#pragma once
#include <cstdint>

#include "../core/mt19937.h"

namespace fastseed {

// _random.Random behind its object header.
struct PythonState {
  int index;
  uint32_t words[kMtWords];
};

// NumPy's MT19937, at bit_generator.ctypes.state_address.
struct NumpyState {
  uint32_t words[kMtWords];
  int position;
};

template <class T>
T* at_address(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

}  // namespace fastseed
