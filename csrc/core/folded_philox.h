// Philox4x32-10 of blocks whose counters differ in the first word alone. What the first three
// rounds have in common is computed once: 3 of the 20 products, or 4 where only the low half of a
// block is wanted.
//
// Written once for one word and for vectors of words. The including file may define FS_LANES, the
// attribute of its instruction set, which has to be that of the functions of its vector type.
#pragma once
#include "philox.h"

#if defined(FS_LANES)
#define FS_ROUNDS FS_LANES
#else
#define FS_ROUNDS FS_HD
#endif

namespace fastseed {

// The product of Philox's second round that all such blocks share.
FS_HD uint64_t folded_product(uint64_t key, uint32_t w1, uint32_t w2) {
  const uint64_t p = static_cast<uint64_t>(kPhiloxM1) * w2;  // of the first round
  return static_cast<uint64_t>(kPhiloxM0) *
         (static_cast<uint32_t>(p >> 32) ^ w1 ^ static_cast<uint32_t>(key));
}

// Round keys with all that the blocks have in common: round r adds k0[r] and k1[r].
struct FoldedKeys {
  uint32_t k0[kPhiloxRounds];
  uint32_t k1[kPhiloxRounds];

  FoldedKeys(uint64_t key, uint32_t w1, uint32_t w2, uint32_t w3) {
    for (int r = 0; r < kPhiloxRounds; ++r) {
      k0[r] = static_cast<uint32_t>(key) + static_cast<uint32_t>(r) * kPhiloxW0;
      k1[r] = static_cast<uint32_t>(key >> 32) + static_cast<uint32_t>(r) * kPhiloxW1;
    }
    const uint64_t q = folded_product(key, w1, w2);
    k1[0] ^= w3;
    k0[1] ^= kPhiloxM1 * w2;
    k1[1] ^= static_cast<uint32_t>(q >> 32);
    k1[2] ^= static_cast<uint32_t>(q);
  }
};

// Words of one block. Vector types have the same functions; what lies above the low half of their
// lanes is harmless, because `mul` reads low halves only.
struct OneWord {
  using Word = uint32_t;
  using Product = uint64_t;

  FS_HD static Word set(uint32_t v) {
    return v;
  }
  FS_HD static Product mul(Word a, Word b) {
    return static_cast<Product>(a) * b;
  }
  FS_HD static Word high(Product p) {
    return static_cast<Word>(p >> 32);
  }
  FS_HD static Word low(Product p) {
    return low_word(p);
  }
  FS_HD static Word bit_xor(Word a, Word b) {
    return a ^ b;
  }
  FS_HD static Word xor3(Word a, Word b, Word c) {
    return a ^ b ^ c;
  }
};

template <class V>
struct FoldedBlock {
  typename V::Word w0, w1, w2, w3;
};

template <class V>
FS_ROUNDS void philox_round(FoldedBlock<V>& b, typename V::Word k0, typename V::Word k1) {
  const typename V::Product p0 = V::mul(V::set(kPhiloxM0), b.w0);
  const typename V::Product p1 = V::mul(V::set(kPhiloxM1), b.w2);
  b.w0 = V::xor3(V::high(p1), b.w1, k0);
  b.w1 = V::low(p1);
  b.w2 = V::xor3(V::high(p0), b.w3, k1);
  b.w3 = V::low(p0);
}

// All rounds but the last of blocks whose first words are their w0. `second` and `third` are k1[1]
// and k1[2], or what other blocks with the same keys have there. The blocks take every step
// together, so that their dependent chains of products run side by side.
template <class V, class Keys, int kBlocks>
FS_ROUNDS void folded_rounds(const Keys& k, typename V::Word second, typename V::Word third,
                             FoldedBlock<V> (&blocks)[kBlocks]) {
  using Product = typename V::Product;
  const typename V::Word m0 = V::set(kPhiloxM0), m1 = V::set(kPhiloxM1);
  FS_UNROLL for (auto& b : blocks) {
    const Product p0 = V::mul(m0, b.w0);
    b.w2 = V::bit_xor(V::high(p0), k.k1[0]);
    b.w3 = V::low(p0);
  }
  FS_UNROLL for (auto& b : blocks) {
    const Product p1 = V::mul(m1, b.w2);
    b.w0 = V::bit_xor(V::high(p1), k.k0[1]);
    b.w1 = V::low(p1);
    b.w2 = V::bit_xor(b.w3, second);
  }
  FS_UNROLL for (auto& b : blocks) {
    const Product p0 = V::mul(m0, b.w0), p1 = V::mul(m1, b.w2);
    b.w0 = V::xor3(V::high(p1), b.w1, k.k0[2]);
    b.w1 = V::low(p1);
    b.w2 = V::bit_xor(V::high(p0), third);
    b.w3 = V::low(p0);
  }
  FS_UNROLL for (int r = 3; r < kPhiloxRounds - 1; ++r) {
    FS_UNROLL for (auto& b : blocks) {
      philox_round(b, k.k0[r], k.k1[r]);
    }
  }
}

// The last round: w2 and w3 only if kBoth.
template <bool kBoth, class V, class Keys>
FS_ROUNDS void folded_last(const Keys& k, FoldedBlock<V>& b) {
  constexpr int kLast = kPhiloxRounds - 1;
  const typename V::Product p1 = V::mul(V::set(kPhiloxM1), b.w2);
  if (kBoth) {
    const typename V::Product p0 = V::mul(V::set(kPhiloxM0), b.w0);
    b.w2 = V::xor3(V::high(p0), b.w3, k.k1[kLast]);
    b.w3 = V::low(p0);
  }
  b.w0 = V::xor3(V::high(p1), b.w1, k.k0[kLast]);
  b.w1 = V::low(p1);
}

}  // namespace fastseed
