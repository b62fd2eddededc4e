// What the draws have in one copy for each instruction set. The words of one stream come from
// CpuPath::blocks (cpu.h).
#pragma once
#include <cstdint>

#include "draws.h"

namespace fastseed {

// Values that may need another word than their own ask their key and place for it.
template <class D>
constexpr bool kRetries = false;
template <class T, class Word>
constexpr bool kRetries<RandInt<T, Word>> = true;

// The values in `blocks` blocks of words of one key, the first of them its block `block`. Returns
// whether key and place did not matter: no word was rejected.
template <class D>
using Convert = bool (*)(const D& distribution, Key key, uint64_t block, const uint32_t* words,
                         int64_t blocks, typename D::Value* out);

// The words of `per_row` blocks of each of `rows` streams, at most kSideBySide, from block
// firsts[row] on.
constexpr int64_t kSideBySide = 64;
using RowWords = void (*)(const uint64_t* keys, const uint64_t* firsts, int64_t rows,
                          int64_t per_row, uint32_t* words);

struct Portable {
  template <class D>
  static bool convert(const D&, Key, uint64_t, const uint32_t*, int64_t, typename D::Value*);
  static void row_words(const uint64_t*, const uint64_t*, int64_t, int64_t, uint32_t*);
};

#if defined(__x86_64__)
struct Avx2 {
  template <class D>
  static bool convert(const D&, Key, uint64_t, const uint32_t*, int64_t, typename D::Value*);
  static void row_words(const uint64_t*, const uint64_t*, int64_t, int64_t, uint32_t*);
};

struct Avx512 {
  template <class D>
  static bool convert(const D&, Key, uint64_t, const uint32_t*, int64_t, typename D::Value*);
  static void row_words(const uint64_t*, const uint64_t*, int64_t, int64_t, uint32_t*);
};
#endif

}  // namespace fastseed
