// The inverse of the normal distribution function: AS 241 (Wichura, 1988), in its forms PPND7 for
// float32 and PPND16 for float64. docs/spec/random.md is the specification; frozen like the
// derivation.
//
// A quotient of two polynomials in each of three regions. Which one is a matter of selecting
// coefficients, so that loops over values become vector code.
#pragma once
#include "fp_math.h"

namespace fastseed {

struct QuantileRegion {
  bool middle, far;  // |z| below 1.44; beyond 6.6 or so; else between
};

// c[0] in the middle, c[1] in the tails, c[2] far out.
template <class T, int kCount>
FS_HD T regional_polynomial(const T (&c)[3][kCount], QuantileRegion at, T x) {
  T value = at.middle ? c[0][kCount - 1] : at.far ? c[2][kCount - 1] : c[1][kCount - 1];
  for (int i = kCount - 2; i >= 0; --i) {
    value = add(mul(value, x), at.middle ? c[0][i] : at.far ? c[2][i] : c[1][i]);
  }
  return value;
}

FS_HD float quantile_quotient(QuantileRegion at, float x) {
  constexpr float kUpper[3][4] = {
      {3.3871327179e0f, 5.0434271938e1f, 1.5929113202e2f, 5.9109374720e1f},
      {1.4234372777e0f, 2.7568153900e0f, 1.3067284816e0f, 1.7023821103e-1f},
      {6.6579051150e0f, 3.0812263860e0f, 4.2868294337e-1f, 1.7337203997e-2f}};
  constexpr float kLower[3][4] = {{1.0f, 1.7895169469e1f, 7.8757757664e1f, 6.7187563600e1f},
                                  {1.0f, 7.3700164250e-1f, 1.2021132975e-1f, 0.0f},
                                  {1.0f, 2.4197894225e-1f, 1.2258202635e-2f, 0.0f}};
  return divide(regional_polynomial(kUpper, at, x), regional_polynomial(kLower, at, x));
}

FS_HD double quantile_quotient(QuantileRegion at, double x) {
  constexpr double kUpper[3][8] = {
      {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
       1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
       3.3430575583588128105e4, 2.5090809287301226727e3},
      {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
       3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
       2.27238449892691845833e-2, 7.74545014278341407640e-4},
      {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
       2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
       2.71155556874348757815e-5, 2.01033439929228813265e-7}};
  constexpr double kLower[3][8] = {
      {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
       2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
       5.2264952788528545610e3},
      {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
       1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
       1.05075007164441684324e-9},
      {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
       7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
       2.04426310338993978564e-15}};
  return divide(regional_polynomial(kUpper, at, x), regional_polynomial(kLower, at, x));
}

// z such that the part of the distribution below it is 1/2 + q. t is the smaller of that part and
// the rest: in the tails, q has too few digits to tell.
template <class T>
FS_HD T normal_quantile(T q, T t) {
  const T r = square_root(negative_log(t));
  const QuantileRegion at{(q < T(0) ? -q : q) <= T(0.425), r > T(5)};
  const T x = at.middle ? add(T(0.180625), -mul(q, q)) : add(r, at.far ? T(-5) : T(-1.6));
  const T quotient = quantile_quotient(at, x);
  return at.middle ? mul(q, quotient) : q < T(0) ? -quotient : quotient;
}

}  // namespace fastseed
