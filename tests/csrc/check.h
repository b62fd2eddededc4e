// Counting checks; the first failure ends the program and says where it was.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

inline int64_t checks_passed = 0;
inline std::string where;  // the row, or the case, that is being checked

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n  at: %s\n", what.c_str(), where.c_str());
  std::exit(1);
}

inline void check(bool holds, const char* what) {
  if (!holds) {
    fail(what);
  }
  ++checks_passed;
}

// n words of output between two margins that must stay unchanged.
template <class Word>
class Poisoned {
 public:
  // `shift` words off an address of 64-byte alignment, so that every alignment can be tried.
  Poisoned(int64_t n, int shift) : n_(n), memory_(static_cast<size_t>(n) + 3 * kMargin, kPoison) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory_.data() + kMargin);
    first_ =
        static_cast<size_t>(kMargin) + (-begin & 63) / sizeof(Word) + static_cast<size_t>(shift);
  }

  Word* data() {
    return memory_.data() + first_;
  }

  void check_margins() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= first_ && i < first_ + static_cast<size_t>(n_);
      if (!inside && memory_[i] != kPoison) {
        fail("a word outside the output was written");
      }
    }
    ++checks_passed;
  }

 private:
  static constexpr size_t kMargin = 32;
  static constexpr Word kPoison = static_cast<Word>(0xa5c3a5c3a5c3a5c3u);

  int64_t n_;
  size_t first_;
  std::vector<Word> memory_;
};
