// The shorter functions of csrc/cuda/fp_math.cuh against those of csrc/core/fp_math.h, on the
// host.
//
//   cuda_real_checks [stride]    every stride-th word; 1 is all of them, and takes minutes
#include <cinttypes>

#include "../../csrc/cuda/fp_math.cuh"
#include "check.h"

namespace {

using namespace fastseed;

bool same(float a, float b) {
  return float_bits(a) == float_bits(b);
}

void check_word(uint32_t w) {
  const float e = negative_log(w);
  const CosSin<float> angle = cos_sin(w);
  const CosSin<float> z = on_circle(1.5f, w);
  check(same(scaled_negative_log<1>(w), e), "scaled_negative_log<1>");
  check(same(scaled_negative_log<2>(w), e + e), "scaled_negative_log<2>");
  check(same(z.cos, 1.5f * angle.cos) && same(z.sin, 1.5f * angle.sin), "on_circle");
}

// Square roots from every wrong start that the manual allows the hardware, and from worse ones: all
// numbers of two binades, so all there are but for powers of four.
void check_roots() {
  for (uint32_t bits = 0x3f800000u; bits < 0x40800000u; ++bits) {
    const float x = bits_float(bits);
    const float root = std::sqrt(x);
    const uint32_t start = float_bits(inverse_root(x));
    for (const int ulps : {-64, -17, -4, -3, -2, -1, 0, 1, 2, 3, 4, 17, 64}) {
      const float from = bits_float(start + static_cast<uint32_t>(ulps));
      if (!same(root_from(x, from), root)) {
        where = std::to_string(bits) + " from " + std::to_string(ulps) + " ulp";
        fail("root_from");
      }
    }
    checks_passed += 13;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t stride = argc > 1 ? std::stoull(argv[1]) : 997;
  for (uint64_t w = 0; w < uint64_t{1} << 32; w += stride) {
    check_word(static_cast<uint32_t>(w));
  }
  for (uint64_t edge = 1; edge < uint64_t{1} << 33; edge *= 2) {  // and around what decides
    for (const uint64_t at : {edge, edge * 0xB504F334u >> 31, edge * 3}) {
      for (uint64_t w = at - 65; w != at + 65; ++w) {
        check_word(static_cast<uint32_t>(w));
      }
    }
  }
  check_roots();
  std::printf("%" PRId64 " checks passed\n", checks_passed);
  return 0;
}
