// Writing the state of a torch CPU generator.
#pragma once
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "../ops/interface.h"
#include "engine_access.h"

namespace fastseed {

// The loops of the operators' library; null until `connect` is called, once, at import.
inline const LoopTable* loops = nullptr;

// All but the words. The next draw makes the next 624 of them, as after manual_seed.
inline void begin_state(at::mt19937_data_pod& data, uint64_t seed) {
  data.seed_ = seed;
  data.left_ = 1;
  data.seeded_ = true;
  data.next_ = 0;
}

// The caller holds the mutex.
inline void forget_cached_normals(at::CPUGeneratorImpl& gen) {
  gen.set_next_float_normal_sample(std::nullopt);
  gen.set_next_double_normal_sample(std::nullopt);
}

// The whole state of a key, expanded where it lies. The caller holds the mutex.
inline void write_state(at::CPUGeneratorImpl& gen, Key key) {
  at::mt19937_data_pod& data = engine_data(gen);
  begin_state(data, key.lo);
  loops->mt19937_expand(key, data.state_.data());
  forget_cached_normals(gen);
}

inline void reseed_cpu(at::CPUGeneratorImpl& gen, Key key) {
  std::lock_guard<std::mutex> lock(gen.mutex_);
  write_state(gen, key);
}

}  // namespace fastseed
