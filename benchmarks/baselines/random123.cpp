// derive_seeds as Random123's own examples would write it: one block an index, in a loop that the
// compiler is free to vectorise. Compiled by random123.py, with -O3 -march=native.
#include <Random123/philox.h>

#include <cstdint>

extern "C" void fill_seeds(uint64_t key, uint64_t tweak, uint32_t rank_word, uint32_t worker,
                           uint64_t start, int64_t n, uint64_t* out) {
  using Philox = r123::Philox4x32;
  const Philox::key_type k = {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  Philox philox;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t x = (start + static_cast<uint64_t>(i)) ^ tweak;
    const Philox::ctr_type counter = {
        {static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32), rank_word, worker}};
    const Philox::ctr_type r = philox(counter, k);
    out[i] = r[0] | static_cast<uint64_t>(r[1]) << 32;
  }
}
