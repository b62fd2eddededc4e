// What the operators' library gives the module `fastseed._generators`, so that the loops are
// compiled and chosen once: a table of functions, whose address the operator `loop_table` returns.
// A change is a new INTERFACE of fastseed/_backend/parts.py.
#pragma once
#include "../core/derive.h"

namespace fastseed {

struct LoopTable {
  void (*derive_keys)(const Stream& stream, uint64_t start, int64_t n, uint64_t* out);
  decltype(&launch_mt19937_expand) mt19937_expand;
  decltype(&launch_mt19937_init) mt19937_init;
  decltype(&fastseed::mt19937_init_width) init_width;
};

}  // namespace fastseed
