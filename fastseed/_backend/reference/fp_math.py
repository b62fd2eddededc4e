"""The reals behind the draws in NumPy: logarithm, a turn, and the quantiles of the normal.

Arithmetic on reals is single operations, each rounded once (IEEE 754, to nearest even), in the
order written, and never a fused multiply-add. That makes the bits the same on every machine.
``docs/spec/random.md`` is the specification.
"""

from __future__ import annotations

import numpy as np

from .philox import Array, Uint64s

Reals = Uint64s  # an array of float32 or float64
Real = type[np.float32] | type[np.float64]
Coefficients = tuple[np.float32, ...] | tuple[np.float64, ...] | tuple[Array, ...]


def _f32(*values: str) -> tuple[np.float32, ...]:
    return tuple(np.float32(float.fromhex(v)) for v in values)


def _f64(*values: str) -> tuple[np.float64, ...]:
    return tuple(np.float64(float.fromhex(v)) for v in values)


# Minimax polynomials by Remez's algorithm, rounded to their type; lowest power first.
# LOG32: (ln(1 + r) - r + r^2 / 2) / r^3         for r in [sqrt(1/2) - 1, sqrt(2) - 1]
# LOG64: (2 artanh(s) - 2 s) / s^3, in s^2       for s = r / (2 + r)
# SIN:   sin(t pi / 2) / t - 1, in t^2           for t in [-1/2, 1/2]
# COS:   (cos(t pi / 2) - 1) / t^2, in t^2       for the same
LOG32 = _f32(
    "0x1.555554p-2", "-0x1.000226p-2", "0x1.99a00ap-3", "-0x1.547246p-3",
    "0x1.22da06p-3", "-0x1.0d851ap-3", "0x1.055be8p-3", "-0x1.38b75cp-4",
)  # fmt: skip
SIN32 = _f32("0x1.243f6ap-1", "-0x1.4abbbap-1", "0x1.465e92p-4", "-0x1.2d9302p-8")
COS32 = _f32("-0x1.3bd3ccp+0", "0x1.03c1dep-2", "-0x1.55c5e0p-6", "0x1.d9d57ep-11")
LOG64 = _f64(
    "0x1.5555555555592p-1", "0x1.999999997fdb7p-2", "0x1.24924941f126bp-2", "0x1.c71c52095c72bp-3",
    "0x1.74663ee86a1b3p-3", "0x1.39a1babb1677bp-3", "0x1.2f05634234922p-3",
)  # fmt: skip
SIN64 = _f64(
    "0x1.243f6a8885a31p-1", "-0x1.4abbce625be41p-1", "0x1.466bc67758700p-4",
    "-0x1.32d2cce2d5364p-8", "0x1.50782fca38ef1p-13", "-0x1.e30063a054e91p-19",
    "0x1.e3eed5da55fe9p-25",
)  # fmt: skip
COS64 = _f64(
    "-0x1.3bd3cc9be45dep+0", "0x1.03c1f081b5aaep-2", "-0x1.55d3c7e3c9280p-6",
    "0x1.e1f5068367b35p-11", "-0x1.a6d1ec7e0c7f7p-16", "0x1.f9cc40ad5d0d8p-22",
    "-0x1.b263c37c57573p-28",
)  # fmt: skip
# ln 2 in two parts; products of the first with an exponent are exact.
LN2_32 = _f32("0x1.63p-1", "-0x1.bd0106p-13")
LN2_64 = _f64("0x1.62e42fefa2000p-1", "0x1.9ef35793c7673p-41")
# the least number that is not below sqrt(1/2)
(ROOT_HALF32,), (ROOT_HALF64,) = _f32("0x1.6a09e8p-1"), _f64("0x1.6a09e667f3bcdp-1")
_SQRT2_32, _SQRT2_64 = np.uint32(0xB504F334), np.uint64(0xB504F333F9DE6485)


def _horner(coefficients: Coefficients, x: Reals) -> Reals:
    value = coefficients[-1] * x + coefficients[-2]
    for c in coefficients[-3::-1]:
        value = value * x + c
    return value


def _shift_to_top(x: Array, bits: int) -> tuple[Array, Array]:
    """(x shifted until its top bit is set, by how many places); x is not zero."""
    one = x.dtype.type
    shift = np.zeros_like(x)
    step = bits // 2
    while step:
        low = x < one(1) << one(bits - step)
        x = np.where(low, x << one(step), x)
        shift = np.where(low, shift + one(step), shift)
        step //= 2
    return x, shift


# AS 241 (Wichura, 1988), PPND7 and PPND16: the inverse of the normal distribution function as a
# quotient of polynomials in the middle, in the tails, and far out.
QUANTILE32 = (
    (
        (3.3871327179e0, 5.0434271938e1, 1.5929113202e2, 5.9109374720e1),
        (1.4234372777e0, 2.7568153900e0, 1.3067284816e0, 1.7023821103e-1),
        (6.6579051150e0, 3.0812263860e0, 4.2868294337e-1, 1.7337203997e-2),
    ),
    (
        (1.0, 1.7895169469e1, 7.8757757664e1, 6.7187563600e1),
        (1.0, 7.3700164250e-1, 1.2021132975e-1, 0.0),
        (1.0, 2.4197894225e-1, 1.2258202635e-2, 0.0),
    ),
)
QUANTILE64 = (
    (
        (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
         1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
         3.3430575583588128105e4, 2.5090809287301226727e3),
        (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
         3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
         2.27238449892691845833e-2, 7.74545014278341407640e-4),
        (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
         2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
         2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
         2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
         5.2264952788528545610e3),
        (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
         1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
         1.05075007164441684324e-9),
        (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
         2.04426310338993978564e-15),
    ),
)  # fmt: skip


def standard_exponential(w: Array) -> Reals:
    """-ln u of u = (w | 1) / 2^bits, of words of 32 bits in float32, of 64 in float64."""
    word, bits = w.dtype.type, 8 * w.itemsize
    real, signed = (np.float32, np.int32) if bits == 32 else (np.float64, np.int64)
    mantissa, shift = _shift_to_top(w | word(1), bits)
    big = mantissa >= (_SQRT2_32 if bits == 32 else _SQRT2_64)
    # mantissa - 2^bits where big, mantissa - 2^(bits - 1) elsewhere, as signed integers
    difference = np.where(big, mantissa, mantissa ^ word(1 << bits - 1)).view(signed)
    r = difference.astype(real) * np.where(big, real(2.0**-bits), real(2.0 ** (1 - bits)))
    return _log(r, np.where(big, shift, shift + word(1)).astype(real))


def _log(r: Reals, k: Reals) -> Reals:
    """-ln of 2^-k (1 + r)."""
    return _log_float32(r, k) if r.dtype == np.float32 else _log_float64(r, k)


def _log_float32(r: Reals, k: Reals) -> Reals:
    square = r * r
    y = _horner(LOG32, r) * r * square
    y = y - k * LN2_32[1]
    y = y - np.float32(0.5) * square
    return k * LN2_32[0] - (r + y)


def _log_float64(r: Reals, k: Reals) -> Reals:
    half = np.float64(0.5) * (r * r)
    s = r / (np.float64(2.0) + r)
    z = s * s
    y = s * (half + _horner(LOG64, z) * z)
    y = y - k * LN2_64[1]
    y = y - half
    return k * LN2_64[0] - (r + y)


def negative_log(t: Reals) -> Reals:
    """-ln t of normal numbers above 0."""
    scaled, exponent = np.frexp(t)  # in [1/2, 1)
    low = scaled < (ROOT_HALF32 if t.dtype == np.float32 else ROOT_HALF64)
    r = np.where(low, scaled * 2, scaled) - t.dtype.type(1)
    return _log(r, (low - exponent).astype(t.dtype))


def normal_quantile(q: Reals, t: Reals) -> Reals:
    """z with 1/2 + q of the normal distribution below it, t the lesser of that and the rest."""
    real = t.dtype.type
    r = np.sqrt(negative_log(t))
    middle = np.abs(q) <= real(0.425)
    region = np.where(middle, 0, np.where(r > real(5), 2, 1))
    x = np.choose(region, (real(0.180625) - q * q, r - real(1.6), r - real(5)))
    upper, lower = (
        _horner(tuple(np.array(c, t.dtype)[region] for c in zip(*table, strict=True)), x)
        for table in (QUANTILE32 if t.dtype == np.float32 else QUANTILE64)
    )
    quotient = upper / lower
    return np.where(middle, q * quotient, np.where(q < 0, -quotient, quotient))


def cos_sin(w: Array) -> tuple[Reals, Reals]:
    """Cosine and sine of 2 pi (n + 1/2) / 2^m, n the top m bits of w: 26 of 32, or 55 of 64."""
    word, bits = w.dtype.type, 8 * w.itemsize
    quadrant = (w + word(1 << bits - 3)) >> word(bits - 2)
    half = 1 << (7 if bits == 32 else 10)  # of the last of the bits that count, after the shift
    place = (w << word(2)) & word(2**bits - 2 * half) | word(half)
    if bits == 32:
        t = place.view(np.int32).astype(np.float32) * np.float32(2.0**-32)
        return _turn(quadrant, t, SIN32, COS32)
    t = place.view(np.int64).astype(np.float64) * np.float64(2.0**-64)
    return _turn(quadrant, t, SIN64, COS64)


def _turn(quadrant: Array, t: Reals, sin: Coefficients, cos: Coefficients) -> tuple[Reals, Reals]:
    """Cosine and sine of (quadrant + t) pi / 2, |t| <= 1/2."""
    z = t * t
    s = _horner(sin, z) * t + t
    c = _horner(cos, z) * z + t.dtype.type(1)
    odd = (quadrant & 1) == 1
    x, y = np.where(odd, s, c), np.where(odd, c, s)
    return np.where((quadrant == 1) | (quadrant == 2), -x, x), np.where(quadrant >= 2, -y, y)


def standard_normal(words: Array) -> Reals:
    """Standard normals in pairs (Box and Muller): words 2i, 2i + 1 give values 2i, 2i + 1."""
    radius = standard_exponential(words[..., 0::2])
    radius = np.sqrt(radius.dtype.type(2) * radius)
    cos, sin = cos_sin(words[..., 1::2])
    return np.stack((radius * cos, radius * sin), axis=-1).reshape(words.shape)
