// What the operators' library gives the module `fastseed._generators`, so that the loops are
// compiled and chosen once: a table of functions, whose address the operator `loop_table` returns.
// A change is a new INTERFACE of fastseed/_backend/parts.py.
#pragma once
#include "../core/derive.h"

namespace fastseed {

// A float of Python, or the low 64 bits of an integer.
union DirectNumber {
  double real;
  uint64_t word;
};

// An operator that writes to one tensor of the CPU, an AtenTensorHandle that it takes over.
struct DirectOperator {
  const char* name;
  int numbers;  // the other arguments
  void (*run)(void* tensor, const DirectNumber* numbers);
};

struct LoopTable {
  void (*derive_keys)(const Stream& stream, uint64_t start, int64_t n, uint64_t* out);
  decltype(&launch_mt19937_expand) mt19937_expand;
  decltype(&launch_mt19937_init) mt19937_init;
  decltype(&fastseed::mt19937_init_width) init_width;
  const DirectOperator* operators;
  size_t operator_count;
  void (**count_write)(void* tensor);  // to be set: see tensor_checks.h
};

}  // namespace fastseed
