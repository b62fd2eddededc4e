// The loops of one CPU instruction set in one table, and the table that this process uses.
//
// Every loop computes any sub-range of its output: the bits do not depend on how one is split.
#pragma once
#include <cstdint>
#include <tuple>

#include "../core/derive.h"
#include "../core/digest.h"
#include "../core/draw.h"
#include "../core/dropout.h"
#include "../core/exact_sum.h"
#include "../core/perturb.h"
#include "../core/sampling.h"
#include "../core/shuffle.h"

namespace fastseed {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are little-endian in memory");

// n blocks of one key whose counters differ in the first 64 bits alone:
//   block i = philox(key, (start + i) ^ tweak, w2, w3).
struct BlockRange {
  uint64_t key;
  uint64_t tweak;
  uint32_t w2;
  uint32_t w3;
  uint64_t start;
};

// Blocks of a key's own stream.
inline BlockRange range_of(Key key, uint64_t block) {
  return BlockRange{key.lo, 0, static_cast<uint32_t>(key.hi), static_cast<uint32_t>(key.hi >> 32),
                    block};
}

// Stores that pass the caches by pay off only when the output would not stay there.
enum class Stores { kCached, kStreaming };

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

#define FS_CONVERT(D) , Convert<D>
using DrawLoops = std::tuple<RowWords FS_EACH_DISTRIBUTION(FS_CONVERT)>;
#undef FS_CONVERT

// Adds the blocks of `groups` groups of 16 bytes, whose numbers count up from `group_number`, to
// total[0] | total[1] << 64.
using DigestGroups = void (*)(uint64_t key, uint64_t group_number, const uint8_t* bytes,
                              int64_t groups, uint64_t* total);

// n elements and their numbers, 16 bits each.
template <class T>
using DropoutLoop = void (*)(const Dropout<T>& rule, const uint16_t* numbers, int64_t n,
                             const T* in, T* out);

// Smallest and greatest order of some numbers.
struct OrderRange {
  uint32_t least, greatest;
};

// The loops of one instruction set; n is at most kSamplingChunk. Indices found are in order.
constexpr int64_t kSamplingChunk = 2048;
struct SamplingLoops {
  OrderRange (*order_range)(const float* x, int64_t n);
  // of numbers whose order is in [low, high]
  int64_t (*select)(const float* x, int64_t n, uint32_t low, uint32_t high, int32_t* found);
  // of numbers that may win
  int64_t (*candidates)(const ScoreBound&, const float* x, const uint32_t* words, int64_t n,
                        int32_t* found);
  void (*masses)(const float* x, int64_t n, float greatest, double temperature, int64_t* out);
};

// Loops over a block of at most kExactBlock numbers, with zeros up to a multiple of kExactMultiple.
constexpr int64_t kExactBlock = 4096;
constexpr int64_t kExactMultiple = 64;

// The bits of the least magnitude that is not 0, and of the greatest one.
struct MagnitudeRange {
  uint64_t least, greatest;
};

template <class T>
struct ExactLoopsOf {
  MagnitudeRange (*magnitudes)(const T* x, int64_t n);
  // Sums in units of the last digits of `high` and `low`; see exact_loops.h.
  void (*values)(const T* x, int64_t n, double high, double low, uint64_t* sums);
  void (*squares)(const T* x, int64_t n, double high, double low, uint64_t* sums);
  // Puts 0 in `within` for magnitudes that are not in [floor, ceiling), and those below `floor`
  // side by side into `small`, which may be `x`; returns how many.
  int64_t (*split_small)(const T* x, int64_t n, uint64_t floor, uint64_t ceiling, T* within,
                         T* small);
};

struct ExactLoops {
  int depth;  // a lane adds at most 2^depth numbers of a block
  ExactLoopsOf<float> floats;
  ExactLoopsOf<double> doubles;
  void (*halves)(const Half* x, int64_t n, float* out);
  void (*bfloats)(const BFloat16* x, int64_t n, float* out);
};

// Loops over n numbers and their noise z, or the words whose bits are its signs.
template <class T>
struct PerturbLoopsOf {
  using Real = RealOf<T>;
  void (*add)(const Real* z, Real scale, int64_t n, T* p);
  void (*add_signs)(const uint32_t* words, Real scale, int64_t n, T* p);
  // Returns whether any byte is kListed.
  bool (*record)(const Real* z, Real scale, int64_t n, const T* p, T* out, int8_t* bytes);
  void (*undo)(const Real* z, Real scale, int64_t n, const int8_t* bytes, T* p);
};

// One of each type of reals.
template <template <class> class F>
using ForReals = std::tuple<F<float>, F<double>, F<Half>, F<BFloat16>>;

struct CpuPath {
  const char* name;
  bool (*supported)();
  int init_width;  // states of `mt19937_init`
  void (*derive_seeds)(const BlockRange&, int64_t n, uint64_t* out, Stores);  // one word a block
  // two words a block; `out` need not be aligned
  void (*derive_keys)(const BlockRange&, int64_t n, uint64_t* out, Stores);
  // the keys of launch_reseed_from
  void (*keys_of_seeds)(const uint64_t* seeds, const int64_t* indices, const Name&, int64_t n,
                        uint64_t* out);
  // `init_width` MT19937 states side by side; `next` as many addresses to prefetch, or null
  void (*mt19937_init)(const uint32_t* seeds, uint32_t* const* states, uint32_t* const* next);
  // as launch_shuffle, of all of n > 1 numbers
  void (*shuffle)(const Shuffle&, const Positions&, int64_t* out);
  // replaces `count` of n > 1 numbers by their positions
  void (*shuffle_positions)(const Shuffle&, int64_t count, int64_t* numbers);
  DigestGroups digest;
  DrawLoops draws;
  SamplingLoops sampling;
  ForReals<DropoutLoop> dropout;
  ExactLoops exact;
  ForReals<PerturbLoopsOf> perturb;
};

// The one in use.
const CpuPath& cpu_path();

// The words of a key's stream, four a block, from block `block` on.
inline void fill_words(const CpuPath& path, Key key, uint64_t block, int64_t blocks, void* words) {
  typedef uint64_t __attribute__((may_alias)) Pair;
  path.derive_keys(range_of(key, block), blocks, static_cast<Pair*>(words), Stores::kCached);
}

// Groups [begin, end) of rows, counted row after row, added to total[0] | total[1] << 64.
void digest_rows(uint64_t key, const DigestRows& rows, int64_t begin, int64_t end, uint64_t* total);

extern const CpuPath kPortablePath;
#if defined(__x86_64__)
extern const CpuPath kAvx2Path;
extern const CpuPath kAvx512Path;
#endif

}  // namespace fastseed
