// The columns of a row of known answers; a row that has too few, or no numbers, is a failure.
#pragma once
#include <sstream>
#include <string>

#include "check.h"

inline uint64_t hex(const std::string& text) {
  size_t end = 0;
  const uint64_t value = std::stoull(text, &end, 16);
  check(end == text.size(), "hex digits");
  return value;
}

struct Fields {
  std::istringstream in;
  explicit Fields(const std::string& line) : in(line) {}
  std::string next() {
    std::string word;
    if (!(in >> word)) {
      fail("a row with too few columns");
    }
    return word;
  }
  int64_t number() {
    return std::stoll(next());
  }
};
