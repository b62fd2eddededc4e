// The rows of ../data/shuffle.txt, and the sizes that its tests try: for the core, every CPU path
// and the CUDA kernel alike.
#pragma once
#include <fstream>
#include <map>
#include <sstream>

#include "../../csrc/core/shuffle.h"
#include "check.h"
#include "names.h"
#include "sha256.h"

using fastseed::Positions;
using fastseed::Shuffle;

inline std::string digest_of(const std::vector<int64_t>& numbers) {
  Sha256 sha;
  for (const int64_t number : numbers) {
    for (int k = 0; k < 8; ++k) {
      sha.add(static_cast<uint8_t>(static_cast<uint64_t>(number) >> (8 * k)));
    }
  }
  std::string text;
  for (const uint8_t byte : sha.finish()) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

inline std::vector<int64_t> all_of(const Positions& at) {
  std::vector<int64_t> all;
  for (int64_t k = 0; k < at.count; ++k) {
    all.push_back(at[k]);
  }
  return all;
}

// Every third of `numbers` replaced by one outside of [0, n), and its position by -1.
inline void put_outside(int64_t n, std::vector<int64_t>& numbers, std::vector<int64_t>& positions) {
  const int64_t outside[] = {n, -1, INT64_MAX, INT64_MIN};
  for (size_t k = 0; k < numbers.size(); k += 3) {
    numbers[k] = outside[k / 3 % 4];
    positions[k] = -1;
  }
}

// `numbers(shuffle, positions)` of every row, or `back(shuffle, numbers)`; how many rows there are.
template <class F, class G>
int check_rows(const char* path, const F& numbers, const G& back) {
  std::ifstream file(path);
  int rows = 0;
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text[0] == '#') {
      continue;
    }
    where = text.substr(0, 160);
    std::istringstream row(text);
    std::string kind, name, rest;
    uint64_t master = 0;
    uint32_t task = 0, epoch = 0;
    int64_t n = 0;
    Positions at{};
    row >> kind >> master >> task >> epoch >> name >> n >> at.start >> at.stride >> at.count;
    check(kind == "order" || kind == "digest" || kind == "inverse", "the kind of a row");
    check(!row.fail() && n >= 1 && at.count >= 1 && at[at.count - 1] < n, "the columns of a row");
    const fastseed::NameKey at_name =
        fastseed::name_key(fastseed::scope_key(master, task, epoch, 0), name_of(name));
    const fastseed::Stream stream{at_name, fastseed::with_domain(0, fastseed::Domain::kShuffle), 0};
    const fastseed::Key key = fastseed::stream_key(stream, static_cast<uint64_t>(n));
    const Shuffle shuffle = fastseed::shuffle_of(key, n);
    const std::vector<int64_t> got =
        kind == "inverse" ? back(shuffle, all_of(at)) : numbers(shuffle, at);
    if (kind != "inverse") {
      check(back(shuffle, got) == all_of(at), "the positions of the numbers of a row");
    }
    if (kind == "digest") {
      std::string digest;
      row >> digest;
      check(digest == digest_of(got), "the digest of the numbers");
    } else {
      for (const int64_t number : got) {
        int64_t expected = -1;
        row >> expected;
        check(!row.fail() && expected == number, "a number of the order");
      }
    }
    check(!(row >> rest), "there are too many columns");
    ++rows;
  }
  if (rows == 0) {
    fail(std::string("no rows in ") + path);
  }
  return rows;
}

// f(shuffle, positions) for sizes around those of vectors and tiles, and permutations whose walks
// are long, short and none.
template <class F>
void each_shape(const F& f) {
  const fastseed::Key key{0x0123456789abcdefu, 0xfedcba9876543210u};
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{17}, int64_t{1009}, int64_t{65536},
                          int64_t{70001}, int64_t{1} << 32, fastseed::kShuffleMost}) {
    const Shuffle shuffle = fastseed::shuffle_of(key, n);
    for (const int64_t count :
         {0, 1, 2, 7, 8, 9, 31, 40, 63, 64, 65, 79, 80, 81, 130, 511, 513, 700}) {
      for (const int64_t stride : {int64_t{1}, int64_t{3}, n / 800 + 1}) {
        if (count > 0 && (count - 1) * stride >= n) {
          continue;
        }
        const int64_t start = count == 0 ? n : n - 1 - (count - 1) * stride;  // up to the last
        where = "n " + std::to_string(n) + ", " + std::to_string(count) + " by " +
                std::to_string(stride);
        f(shuffle, Positions{start, stride, count});
      }
    }
  }
}
