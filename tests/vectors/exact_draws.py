"""The draws of ``docs/spec/random.md`` in exact arithmetic, for ``make_draw_vectors.py``.

A second implementation, for proof and not for use, written from the specification alone. Reals are
fractions, rounded by hand after every operation: neither the hardware's arithmetic nor anything of
fastseed takes part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from make_vectors import U32, U64, block

# --- arithmetic: exact, then one rounding -----------------------------------------------------


class Format(NamedTuple):
    """An IEEE 754 binary format: significant bits, the exponent of its least normal, width."""

    precision: int
    least: int
    width: int

    def round(self, x: Fraction) -> Fraction:
        """To nearest, ties to even. Python's ``round`` of a fraction is just that, to integers."""
        if x == 0:
            return x
        exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
        if abs(x) < power(exponent):
            exponent -= 1
        unit = power(max(exponent, self.least) - self.precision + 1)
        return round(x / unit) * unit

    def bits(self, x: Fraction) -> int:
        """The pattern of x rounded: infinite where too large, and zeros have the sign of x."""
        sign, x = int(x < 0) << (self.width - 1), abs(self.round(x))
        if x >= power(2 - self.least):
            return sign | (1 << (self.width - 1)) - (1 << (self.precision - 1))
        if x < power(self.least):
            return sign | int(x / power(self.least - self.precision + 1))
        exponent = x.numerator.bit_length() - x.denominator.bit_length()
        fraction = x / power(exponent) - 1
        field = (exponent - self.least + 1) << (self.precision - 1)
        return sign | field | int(fraction * power(self.precision - 1))

    def sqrt(self, x: Fraction) -> Fraction:
        """Correctly rounded: a root of twice the bits needed, with what is left as a last bit."""
        scale = 2 * (self.precision + 4 - self.least // 2)
        scaled = x * power(scale)
        root = math.isqrt(int(scaled))
        inexact = Fraction(root * root) != scaled
        return self.round((2 * root + inexact) * power(-scale // 2 - 1))


def power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


FORMATS = {
    "float16": Format(11, -14, 16),
    "bfloat16": Format(8, -126, 16),
    "float32": Format(24, -126, 32),
    "float64": Format(53, -1022, 64),
}
INTEGERS = {"bool": 8, "uint8": 8, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}


class Real(NamedTuple):
    """A number of a format, whose operations round."""

    exact: Fraction
    format: Format

    def _made(self, x: Fraction) -> Real:
        rounded = self.format.round(x)
        assert abs(rounded) < power(2 - self.format.least), "no computation overflows"
        return Real(rounded, self.format)

    def __add__(self, other: Real) -> Real:  # type: ignore[override]
        return self._made(self.exact + other.exact)

    def __sub__(self, other: Real) -> Real:
        return self._made(self.exact - other.exact)

    def __mul__(self, other: Real) -> Real:  # type: ignore[override]
        return self._made(self.exact * other.exact)

    def __truediv__(self, other: Real) -> Real:
        return self._made(self.exact / other.exact)

    def __neg__(self) -> Real:
        return Real(-self.exact, self.format)

    def sqrt(self) -> Real:
        return Real(self.format.sqrt(self.exact), self.format)


def number(x: float | Fraction, dtype: str) -> Real:
    """x, rounded to a type."""
    return Real(FORMATS[dtype].round(Fraction(x)), FORMATS[dtype])


def horner(coefficients: list[Real], x: Real) -> Real:
    """From the highest power down; the lowest stands first."""
    *lower, total = coefficients
    for c in reversed(lower):
        total = total * x + c
    return total


def polynomial(text: str, x: Real) -> Real:
    return horner([Real(Fraction(float.fromhex(c)), x.format) for c in text.split()], x)


# --- the functions of docs/spec/random.md ---------------------------------------------------------

LOG32 = """0x1.555554p-2 -0x1.000226p-2 0x1.99a00ap-3 -0x1.547246p-3 0x1.22da06p-3 -0x1.0d851ap-3
    0x1.055be8p-3 -0x1.38b75cp-4"""
LOG64 = """0x1.5555555555592p-1 0x1.999999997fdb7p-2 0x1.24924941f126bp-2 0x1.c71c52095c72bp-3
    0x1.74663ee86a1b3p-3 0x1.39a1babb1677bp-3 0x1.2f05634234922p-3"""
SIN32 = "0x1.243f6ap-1 -0x1.4abbbap-1 0x1.465e92p-4 -0x1.2d9302p-8"
SIN64 = """0x1.243f6a8885a31p-1 -0x1.4abbce625be41p-1 0x1.466bc67758700p-4 -0x1.32d2cce2d5364p-8
    0x1.50782fca38ef1p-13 -0x1.e30063a054e91p-19 0x1.e3eed5da55fe9p-25"""
COS32 = "-0x1.3bd3ccp+0 0x1.03c1dep-2 -0x1.55c5e0p-6 0x1.d9d57ep-11"
COS64 = """-0x1.3bd3cc9be45dep+0 0x1.03c1f081b5aaep-2 -0x1.55d3c7e3c9280p-6 0x1.e1f5068367b35p-11
    -0x1.a6d1ec7e0c7f7p-16 0x1.f9cc40ad5d0d8p-22 -0x1.b263c37c57573p-28"""
LN2_32 = ("0x1.63p-1", "-0x1.bd0106p-13")
LN2_64 = ("0x1.62e42fefa2000p-1", "0x1.9ef35793c7673p-41")


def root_two(width: int) -> int:
    """The least integer that is not below sqrt(2) 2^(width - 1)."""
    return math.isqrt(2 << 2 * (width - 1)) + 1


def negative_log(word: int, dtype: str) -> Real:
    width = FORMATS[dtype].width
    x = word | 1
    s = width - x.bit_length()
    m = x << s
    if m >= root_two(width):
        k, difference, scale = s, m - (1 << width), power(-width)
    else:
        k, difference, scale = s + 1, m - (1 << (width - 1)), power(1 - width)
    return log_from(Real(number(difference, dtype).exact * scale, FORMATS[dtype]), k)


def log_from(r: Real, k: int) -> Real:
    """-ln of 2^-k (1 + r)."""
    width = r.format.width
    dtype = f"float{width}"
    high, low = (number(float.fromhex(c), dtype) for c in (LN2_32 if width == 32 else LN2_64))
    k_real, half = number(k, dtype), number(0.5, dtype)
    if width == 32:
        y = (polynomial(LOG32, r) * r) * (r * r)
        y = y - k_real * low
        y = y - half * (r * r)
    else:
        h = half * (r * r)
        q = r / (number(2, dtype) + r)
        z = q * q
        y = q * (h + polynomial(LOG64, z) * z)
        y = y - k_real * low
        y = y - h
    return k_real * high - (r + y)


def cos_sin(word: int, dtype: str) -> tuple[Real, Real]:
    if FORMATS[dtype].width == 32:
        quadrant, place, width = (word + (1 << 29)) >> 30, (word << 2 & 0xFFFFFF00) | 0x80, 32
        sine, cosine = SIN32, COS32
    else:
        quadrant, place, width = (word + (1 << 61)) >> 62, (word << 2 & U64 & ~0x7FF) | 0x400, 64
        sine, cosine = SIN64, COS64
    signed = place - (1 << width) if place >> (width - 1) else place
    t = number(signed * power(-width), dtype)
    assert t.exact == signed * power(-width)
    z = t * t
    s = polynomial(sine, z) * t + t
    c = polynomial(cosine, z) * z + number(1, dtype)
    return [(c, s), (-s, c), (-c, -s), (s, -c)][quadrant % 4]


# AS 241 (Wichura, 1988), decimal as printed: numerators and denominators in the middle, in the
# tails, far out.
QUANTILE32 = (
    (
        """3.3871327179e0 5.0434271938e1 1.5929113202e2 5.9109374720e1""",
        """1.4234372777e0 2.7568153900e0 1.3067284816e0 1.7023821103e-1""",
        """6.6579051150e0 3.0812263860e0 4.2868294337e-1 1.7337203997e-2""",
    ),
    (
        """1.0 1.7895169469e1 7.8757757664e1 6.7187563600e1""",
        """1.0 7.3700164250e-1 1.2021132975e-1 0.0""",
        """1.0 2.4197894225e-1 1.2258202635e-2 0.0""",
    ),
)
QUANTILE64 = (
    (
        """3.3871328727963666080e0 1.3314166789178437745e2 1.9715909503065514427e3
        1.3731693765509461125e4 4.5921953931549871457e4 6.7265770927008700853e4
        3.3430575583588128105e4 2.5090809287301226727e3""",
        """1.42343711074968357734e0 4.63033784615654529590e0 5.76949722146069140550e0
        3.64784832476320460504e0 1.27045825245236838258e0 2.41780725177450611770e-1
        2.27238449892691845833e-2 7.74545014278341407640e-4""",
        """6.65790464350110377720e0 5.46378491116411436990e0 1.78482653991729133580e0
        2.96560571828504891230e-1 2.65321895265761230930e-2 1.24266094738807843860e-3
        2.71155556874348757815e-5 2.01033439929228813265e-7""",
    ),
    (
        """1.0 4.2313330701600911252e1 6.8718700749205790830e2 5.3941960214247511077e3
        2.1213794301586595867e4 3.9307895800092710610e4 2.8729085735721942674e4
        5.2264952788528545610e3""",
        """1.0 2.05319162663775882187e0 1.67638483018380384940e0 6.89767334985100004550e-1
        1.48103976427480074590e-1 1.51986665636164571966e-2 5.47593808499534494600e-4
        1.05075007164441684324e-9""",
        """1.0 5.99832206555887937690e-1 1.36929880922735805310e-1 1.48753612908506148525e-2
        7.86869131145613259100e-4 1.84631831751005468180e-5 1.42151175831644588870e-7
        2.04426310338993978564e-15""",
    ),
)


def log_of(t: Real) -> Real:
    """-ln t of a normal number above 0."""
    digits = t.format.precision
    k, scaled = 0, t.exact
    root = Fraction(math.isqrt(power(2 * digits - 1).numerator) + 1) * power(-digits)
    while scaled >= 2 * root:
        k, scaled = k - 1, scaled / 2
    while scaled < root:
        k, scaled = k + 1, scaled * 2
    return log_from(Real(scaled - 1, t.format), k)


def quantile(q: Real, t: Real) -> Real:
    kind = "float32" if q.format.precision == 24 else "float64"
    middle = abs(q.exact) <= number(Fraction("0.425"), kind).exact
    if middle:
        region, x = 0, number(Fraction("0.180625"), kind) - q * q
    else:
        r = log_of(t).sqrt()
        region = 2 if r.exact > 5 else 1
        x = r - number(5 if region == 2 else Fraction("1.6"), kind)
    upper, lower = (
        horner([number(Fraction(c), kind) for c in table[region].split()], x)
        for table in (QUANTILE32 if kind == "float32" else QUANTILE64)
    )
    z = upper / lower
    return q * z if middle else -z if q.exact < 0 else z


# --- streams and draws ------------------------------------------------------------------------


class Draw(NamedTuple):
    """One draw of a stream: where it is and which values are wanted."""

    lo: int
    hi: int
    position: int
    first: int
    count: int

    def word(self, p: int) -> int:
        i = p // 4
        return block(self.lo, i & U32, i >> 32, self.hi & U32, self.hi >> 32)[p % 4]

    def place(self, j: int, words: int) -> int:
        """Return the word at which value j begins."""
        return -(-self.position // 4) * 4 + j * words

    def value(self, j: int, words: int) -> int:
        p = self.place(j, words)
        return sum(self.word(p + i) << 32 * i for i in range(words))

    def candidates(self, j: int, words: int) -> Iterator[int]:
        yield self.value(j, words)
        p = self.place(j, words)
        for t in range(128):
            high = p >> 32 | (0x80 + t) << 24
            r = block(self.lo, p & U32, high, self.hi & U32, self.hi >> 32)
            for first in range(0, 4, words):
                yield sum(r[first + i] << 32 * i for i in range(words))

    def indices(self) -> range:
        return range(self.first, self.first + self.count)


def computing(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def uniform(at: Draw, dtype: str, j: int, span: Real, shift: Real, cap: Real) -> Fraction:
    if dtype == "float64":
        u = number((at.value(j, 2) >> 11) * power(-53), dtype)
    else:
        u = number((at.value(j, 1) >> 8) * power(-24), "float32")
    return min((u * span + shift).exact, cap.exact)


def normal(at: Draw, dtype: str, j: int, mean: Real, std: Real) -> Fraction:
    kind, words = computing(dtype), 2 if dtype == "float64" else 1
    e = negative_log(at.value(j - j % 2, words), kind)
    turn = cos_sin(at.value(j - j % 2 + 1, words), kind)
    return ((e + e).sqrt() * turn[j % 2] * std + mean).exact


def exponential(at: Draw, dtype: str, j: int, scale: Real) -> Fraction:
    word = at.value(j, 2 if dtype == "float64" else 1)
    return (negative_log(word, computing(dtype)) * scale).exact


def trunc_normal(at: Draw, dtype: str, j: int, *parameters: Real) -> Fraction:
    mean, std, middle, span, below, above, low, high = parameters
    kind, words = computing(dtype), 2 if dtype == "float64" else 1
    bits = 32 * words
    v = at.value(j, words) | 1
    i = v - (1 << bits) if v >> (bits - 1) else v
    place = number(i * power(-bits), kind)
    edge = number(((1 << (bits - 1)) - abs(i)) * power(-bits), kind)
    q = place * span + middle
    left = q.exact < 0
    inside = edge if left == (i < 0) else number(1, kind) - edge
    z = quantile(q, inside * span + (below if left else above))
    return min(max((z * std + mean).exact, low.exact), high.exact)


def bernoulli(at: Draw, dtype: str, j: int, threshold: int) -> Fraction:
    return Fraction(at.value(j, 1) < threshold)


def randint(at: Draw, dtype: str, j: int, low: int, span: int) -> Fraction:
    words = 2 if span >> 32 else 1
    for candidate in at.candidates(j, words):
        whole, rest = divmod(candidate * span, 1 << 32 * words)
        if rest >= (1 << 32 * words) % span:
            break
    return Fraction(low + whole)


def bits(at: Draw, dtype: str, j: int) -> Fraction:
    return Fraction(at.value(j, INTEGERS[dtype] // 32))


FUNCTIONS = {
    f.__name__: f for f in (bits, uniform, normal, exponential, trunc_normal, bernoulli, randint)
}
