"""Make (or check) ``exact_sum.txt``, the known answers of exact sums, version 1.

    python make_exact_sum_vectors.py           write it, refusing to change a frozen row
    python make_exact_sum_vectors.py --check   exit 1 if the file on disk is not what this makes

Written from ``docs/spec/exact-sums.md`` alone, in the exact fractions of ``exact_draws.py``. It
imports nothing of fastseed.
"""

import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import frozen  # noqa: E402
from exact_draws import FORMATS, Format, power  # noqa: E402
from make_dropout_vectors import exact  # noqa: E402
from make_vectors import Filler  # noqa: E402

VECTORS = HERE / "exact_sum.txt"
ROOT_PLACES = 1200

HEADER = """\
# Known answers of fastseed's exact sums, version 1. Made by make_exact_sum_vectors.py.
# Numbers are written as hex digits of an odd integer and the exponent of two that it is times.
# sum  dtype values factors  number nans infinities -infinities
#   values: bits of the dtype as hex digits of its width, joined by commas, or - for none;
#   factors: the same, - for a sum of the values, = for a sum of their squares
# mean dtype number weight  bits of number / weight
# root dtype number  bits of its square root
"""


def written(x: Fraction) -> str:
    """A dyadic number."""
    if x == 0:
        return "0 0"
    exponent = 1 - x.denominator.bit_length()
    integer = abs(int(x / power(exponent)))
    zeros = (integer & -integer).bit_length() - 1
    sign = "-" if x < 0 else ""
    return f"{sign}{integer >> zeros:x} {exponent + zeros}"


def kind_of(bits: int, form: Format) -> str:
    """Return which infinity or NaN a pattern is."""
    infinity = (1 << (form.width - 1)) - (1 << (form.precision - 1))
    magnitude = bits & (1 << (form.width - 1)) - 1
    return "nan" if magnitude > infinity else "-inf" if bits != magnitude else "inf"


def kind_of_product(a: int, b: int, form: Format) -> str:
    kinds = [kind_of(x, form) if exact(x, name_of(form)) is None else None for x in (a, b)]
    magnitudes = [x & (1 << (form.width - 1)) - 1 for x in (a, b)]
    if "nan" in kinds or 0 in magnitudes:
        return "nan"
    return "-inf" if (a ^ b) >> (form.width - 1) else "inf"


def name_of(form: Format) -> str:
    return next(name for name, other in FORMATS.items() if other == form)


def sum_row(dtype: str, values: list[int], factors: list[int] | str) -> str:
    form = FORMATS[dtype]
    total, kinds = Fraction(0), []
    others = values if factors == "=" else factors
    for i, bits in enumerate(values):
        x = exact(bits, dtype)
        if others == "-":
            kinds += [kind_of(bits, form)] if x is None else []
            total += x or 0
            continue
        y = exact(others[i], dtype)
        if x is None or y is None:
            kinds.append(kind_of_product(bits, others[i], form))
        else:
            total += x * y

    def text(given: list[int] | str) -> str:
        if isinstance(given, str):
            return given
        return ",".join(f"{bits:0{form.width // 4}x}" for bits in given) or "-"

    counts = " ".join(str(kinds.count(kind)) for kind in ("nan", "inf", "-inf"))
    return f"sum {dtype} {text(values)} {text(factors)} {written(total)} {counts}"


def mean_row(dtype: str, number: Fraction, weight: Fraction) -> str:
    form = FORMATS[dtype]
    bits = form.bits(number / weight)
    return f"mean {dtype} {written(number)} {written(weight)} {bits:0{form.width // 4}x}"


def root_row(dtype: str, number: Fraction) -> str:
    """The root has bits far below the least number, and then one for all that is left."""
    form = FORMATS[dtype]
    scaled = number * power(2 * ROOT_PLACES)
    root = math.isqrt(int(scaled))
    inexact = Fraction(root * root) != scaled
    bits = form.bits((2 * root + inexact) * power(-ROOT_PLACES - 1))
    return f"root {dtype} {written(number)} {bits:0{form.width // 4}x}"


# --- which rows -------------------------------------------------------------------------------


def lists(dtype: str, fill: Filler) -> Iterator[list[int]]:
    form = FORMATS[dtype]
    top = 1 << (form.width - 1)
    infinity = top - (1 << (form.precision - 1))
    one = (1 - form.least) << (form.precision - 1)
    least_normal = 1 << (form.precision - 1)
    yield []
    yield [0]
    yield [top]
    yield [one]
    yield [1] * 70  # the least subnormal number
    yield [infinity - 1] * 130  # the greatest one: the sum is beyond the dtype
    yield [infinity - 1, one, infinity - 1 | top]  # all but the 1 cancels
    yield [1, infinity - 1, 1 | top, infinity - 1 | top]
    yield [least_normal - 1, least_normal, least_normal + 1, least_normal | top]
    yield [infinity, one]
    yield [infinity | top, infinity, infinity | top, infinity + 1, one, 0]
    yield [fill.below(1 << form.width) for _ in range(40)]  # of all magnitudes
    yield [fill.below(infinity) | fill.below(2) << (form.width - 1) for _ in range(100)]
    near = 3 << (form.precision - 1)
    yield [one - near + fill.below(2 * near) | fill.below(2) << (form.width - 1) for _ in range(90)]


def sum_rows() -> Iterator[str]:
    for dtype in FORMATS:
        fill = Filler(f"exact sum {dtype}")
        for values in lists(dtype, fill):
            yield sum_row(dtype, values, "-")
            yield sum_row(dtype, values, "=")
            if values:
                yield sum_row(dtype, values, values[1:] + values[:1])


def rounding_rows() -> Iterator[str]:
    for dtype in ("float32", "float64"):
        form = FORMATS[dtype]
        fill = Filler(f"exact mean {dtype}")
        last = power(form.least - form.precision + 1)
        half = power(-form.precision)
        ties = [1 + half, 1 + 3 * half, 1 + half + power(-900), 1 + half - power(-900)]
        ends = [power(2 - form.least) * (1 - half / 2), power(2 - form.least) * (1 - half)]
        ends += [power(1 - form.least) * (2 - half) - power(-900), last, last / 2, last * 3 / 2]
        ends += [last / 2 + power(-2000), power(form.least), power(form.least) - last / 2]
        for number in [Fraction(0), *ties, *ends]:
            for sign in (1, -1):
                yield mean_row(dtype, sign * number, Fraction(1))
                yield mean_row(dtype, sign * number * 7, Fraction(7))
            yield root_row(dtype, number)
            yield root_row(dtype, number * number)
        for _ in range(60):
            number = fill.below(1 << 64) * power(fill.below(260) - 190)
            weight = (fill.below(1 << 40) + 1) * power(fill.below(40) - 20)
            yield mean_row(dtype, -number, weight)
            yield root_row(dtype, number)
            yield root_row(dtype, number * number + power(-600))


def main(arguments: list[str]) -> int:
    rows = [*sum_rows(), *rounding_rows()]
    return frozen.write(VECTORS, HEADER, rows, arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
