// What the derivation takes of a name, by the tests' own SHA-256.
#pragma once
#include <string>

#include "../../csrc/core/derive.h"
#include "sha256.h"

inline fastseed::Name name_of(const std::string& text) {
  Sha256 sha;
  for (const char c : text) {
    sha.add(static_cast<uint8_t>(c));
  }
  const auto digest = sha.finish();
  fastseed::Name name{0, 0};
  for (size_t k = 0; k < 8; ++k) {
    name.lo |= static_cast<uint64_t>(digest[k]) << (8 * k);
    name.hi |= static_cast<uint64_t>(digest[8 + k]) << (8 * k);
  }
  return name;
}
