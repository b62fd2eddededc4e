// Brings every layout of rows into whole groups, for the loop of this CPU.
#include "../core/digest.h"

#include <algorithm>
#include <cstring>

#include "dispatch.h"

namespace fastseed {
namespace {

constexpr int64_t kStagedGroups = 256;  // groups that are put together before they are digested
constexpr int64_t kLongRow = 128;       // longer ones are digested where they are

template <class T>
uint64_t load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Fewer than 16 bytes and zeros behind them; by loads that overlap, not byte by byte.
void copy_part(uint8_t* to, const uint8_t* from, int64_t n) {
  uint64_t words[2] = {};
  if (n > 8) {
    words[0] = load<uint64_t>(from);
    words[1] = load<uint64_t>(from + n - 8) >> (8 * (16 - n));
  } else if (n == 8) {
    words[0] = load<uint64_t>(from);
  } else if (n >= 4) {
    words[0] = load<uint32_t>(from) | load<uint32_t>(from + n - 4) << (8 * (n - 4));
  } else if (n > 0) {
    words[0] = from[0] | static_cast<uint64_t>(from[n / 2]) << (8 * (n / 2)) |
               static_cast<uint64_t>(from[n - 1]) << (8 * (n - 1));
  }
  std::memcpy(to, words, sizeof(words));
}

// Groups of rows that are no whole number of them, or short: put side by side first.
struct Stage {
  uint64_t key;
  DigestGroups add_groups;
  uint64_t* total;
  uint64_t place = 0;
  int64_t count = 0;
  alignas(64) uint8_t buffer[16 * kStagedGroups];

  Stage(uint64_t key, DigestGroups add, uint64_t* total)
      : key(key), add_groups(add), total(total) {}

  void add(uint64_t group_number, const uint8_t* bytes, int64_t n) {
    const int64_t groups = row_groups(n), whole = n / 16;
    if (group_number != place + static_cast<uint64_t>(count) || count + groups > kStagedGroups) {
      flush();
      place = group_number;
    }
    uint8_t* at = buffer + 16 * count;
    for (int64_t k = 0; k < whole; ++k) {
      std::memcpy(at + 16 * k, bytes + 16 * k, 16);
    }
    if (whole < groups) {
      copy_part(at + 16 * whole, bytes + 16 * whole, n - 16 * whole);
    }
    count += groups;
  }

  void flush() {
    if (count > 0) {
      add_groups(key, place, buffer, count, total);
      count = 0;
    }
  }
};

}  // namespace

void digest_rows(uint64_t key, const DigestRows& rows, int64_t begin, int64_t end,
                 uint64_t* total) {
  const DigestGroups add = cpu_path().digest;
  const int64_t per_row = row_groups(rows.row_bytes);
  if (end <= begin || per_row == 0) {
    return;
  }
  const bool dense = rows.row_bytes == 16 * per_row && rows.stride == rows.row_bytes &&
                     rows.group_stride == static_cast<uint64_t>(per_row);
  if (dense || rows.rows == 1) {
    const int64_t whole = dense ? end : std::min(end, rows.row_bytes / 16);
    add(key, rows.group_number + static_cast<uint64_t>(begin), rows.bytes + 16 * begin,
        std::max(whole - begin, int64_t{0}), total);
    begin = std::max(begin, whole);
  }
  Stage stage(key, add, total);
  int64_t row = begin / per_row, first = begin % per_row;
  for (int64_t i = begin; i < end; ++row, first = 0) {
    const int64_t n = std::min(per_row - first, end - i);
    uint64_t group_number = rows.group_number + rows.group_stride * static_cast<uint64_t>(row) +
                            static_cast<uint64_t>(first);
    const uint8_t* bytes = rows.bytes + row * rows.stride + 16 * first;
    int64_t left = std::min(rows.row_bytes - 16 * first, 16 * n);
    if (n > kLongRow) {
      const int64_t whole = left / 16;
      add(key, group_number, bytes, whole, total);
      group_number += static_cast<uint64_t>(whole);
      bytes += 16 * whole;
      left -= 16 * whole;
    }
    if (left > 0) {
      stage.add(group_number, bytes, left);
    }
    i += n;
  }
  stage.flush();
}

void launch_digest(const DigestPlan& plan, uint64_t* sums, Range part) {
  plan.each_entry(part.begin, part.end,
                  [&](int64_t i, const DigestEntry& entry, int64_t begin, int64_t end) {
                    uint64_t total[2] = {};
                    digest_rows(entry.key, entry.rows, begin, end, total);
                    // Each addition hands its own carry on: any order of any threads gives the sum.
                    uint64_t* sum = sums + 2 * i;
                    const uint64_t low = __atomic_add_fetch(sum, total[0], __ATOMIC_RELAXED);
                    const uint64_t high = total[1] + (low < total[0] ? 1 : 0);
                    __atomic_add_fetch(sum + 1, high, __ATOMIC_RELAXED);
                  });
}

}  // namespace fastseed
