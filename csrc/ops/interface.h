// What the operators' library gives the module `fastseed._generators`, so that the loops are
// compiled and chosen once: a table of functions, whose address the operator `loop_table` returns.
#pragma once
#include "../kernels/derive.h"

// Counted up with each change of the table, of an operator or of the module: the three parts of
// the package have to agree (see fastseed/_backend/native.py).
#define FS_INTERFACE 17
#define FS_TEXT_OF(number) #number
#define FS_TEXT(number) FS_TEXT_OF(number)
#define FS_INTERFACE_MARK "fastseed interface " FS_TEXT(FS_INTERFACE) "."  // in the library's file

namespace fastseed {

struct LoopTable {
  decltype(&launch_derive_keys) derive_keys;
  decltype(&launch_mt19937_expand) mt19937_expand;
  decltype(&launch_mt19937_init) mt19937_init;
  decltype(&fastseed::mt19937_init_width) init_width;
};

}  // namespace fastseed
