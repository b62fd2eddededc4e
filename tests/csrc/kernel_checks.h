// What test_core.cpp asks of every kernel beyond single rows: kernel_checks.cpp.
#pragma once
#include "../../csrc/core/derive.h"
#include "../../csrc/cpu/dispatch.h"

// The block at range.start, on every path, as one of a range of odd length that lies around it.
void check_paths_agree(const fastseed::BlockRange& range, fastseed::Key expected);

// Sizes, alignments, margins, boundaries of the index, splits, threads, MT19937 initialization.
void check_kernels();
