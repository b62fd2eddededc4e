"""Make (or check) ``draws.txt``, the known answers of the draws.

    python make_draw_vectors.py           write draws.txt, refusing to change a frozen row
    python make_draw_vectors.py --check   exit 1 if the file on disk is not what this program makes

The values come from ``exact_draws.py``, a second implementation of version 1 of the draws. Rows are
only ever appended, as in ``make_vectors.py``, which has the generator and its published answers.
"""

import itertools
import math
import sys
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import frozen  # noqa: E402
from exact_draws import (  # noqa: E402
    FORMATS,
    FUNCTIONS,
    INTEGERS,
    Draw,
    Real,
    computing,
    cos_sin,
    negative_log,
    number,
    power,
    root_two,
)
from make_vectors import U32, U64, Filler, golden_rows  # noqa: E402

DRAWS = HERE / "draws.txt"

HEADER = """\
# Known answers of the fastseed draws, version 1. Made by make_draw_vectors.py; never edited.
# Keys of 16 hex digits; reals are bit patterns, integers of a dtype its bits, all as hex digits.
# real  function type word  result
# draw  distribution dtype lo hi position first count  parameters...  values...
#   first, count: values first .. first + count - 1 of the draw that begins at position
#   parameters, in the type of the computation:
#     bits none, uniform span shift cap, normal mean std, exponential scale
#     trunc_normal mean std middle span below above low high
#   and as decimals: bernoulli threshold, randint low range
"""


# --- one function a kind of row ---------------------------------------------------------------


def pattern(x: Fraction, dtype: str) -> str:
    if dtype in FORMATS:
        return f"{FORMATS[dtype].bits(x):0{FORMATS[dtype].width // 4}x}"
    return f"{int(x) % (1 << INTEGERS[dtype]):0{INTEGERS[dtype] // 4}x}"


def draw_row(distribution: str, dtype: str, at: Draw, parameters: tuple) -> str:
    function = FUNCTIONS[distribution]
    values = [pattern(function(at, dtype, j, *parameters), dtype) for j in at.indices()]
    shown = [pattern(p.exact, computing(dtype)) if isinstance(p, Real) else p for p in parameters]
    where = (f"{at.lo:016x}", f"{at.hi:016x}", *at[2:])
    return " ".join(map(str, ("draw", distribution, dtype, *where, *shown, *values)))


def real_row(function: str, dtype: str, word: int) -> str:
    pair = dict(zip(("cos", "sin"), cos_sin(word, dtype), strict=True))
    x = negative_log(word, dtype) if function == "negative_log" else pair[function]
    digits = FORMATS[dtype].width // 4
    return f"real {function} {dtype} {word:0{digits}x} {pattern(x.exact, dtype)}"


# --- which rows -------------------------------------------------------------------------------


def below(high: float, dtype: str) -> Fraction:
    """The largest number of the dtype below ``high``, which is one of its numbers."""
    tiny = power(FORMATS[dtype].least - FORMATS[dtype].precision - 60)
    step = tiny
    while FORMATS[dtype].round(Fraction(high) - step) == Fraction(high):
        step *= 2
    return FORMATS[dtype].round(Fraction(high) - step)


def interval(low: float, high: float, dtype: str) -> tuple:
    kind = computing(dtype)
    cap = number(below(high, dtype), kind)
    return number(high - low, kind), number(low, kind), cap


def area(x: float) -> Fraction:
    """The part of the normal distribution between 0 and x, to 100 digits."""
    with localcontext() as context:
        context.prec = 120
        arctan = lambda n: sum(  # noqa: E731
            Decimal((-1) ** k) / ((2 * k + 1) * Decimal(n) ** (2 * k + 1)) for k in range(90)
        )
        pi = 4 * (4 * arctan(5) - arctan(239))  # Machin
        y = Decimal(x)
        term = total = y
        k = 0
        while abs(term) > abs(total) * Decimal("1e-115"):
            k += 1
            term = term * y * y / (2 * k + 1)
            total += term
        return Fraction(total * (-y * y / 2).exp() / (2 * pi).sqrt())


def truncated(mean: float, std: float, a: float, b: float, dtype: str) -> tuple:
    kind, half = computing(dtype), Fraction(1, 2)
    left, right = (area((x - mean) / std) for x in (a, b))
    ends = [FORMATS[dtype].round(Fraction(x)) for x in (-a, b)]
    high = [x if x <= y else below(float(x), dtype) for x, y in zip(ends, (-a, b), strict=True)]
    areas = ((left + right) / 2, right - left, half + left, half - right)
    as_doubles = [FORMATS["float64"].round(x) for x in areas]
    return tuple(number(x, kind) for x in (mean, std, *as_doubles, -high[0], high[1]))


INTERVALS = ((0.0, 1.0), (-1.0, 1.0), (-0.75, 3.0), (1000.0, 1001.0), (-(2.0**-9), 0.0))
# Among them: beyond float16, where it has few bits left, and float32 likewise.
TRUNCATED = (
    (0.0, 1.0, -2.0, 2.0),
    (0.0, 0.02, -2.0, 2.0),
    (0.0, 1.0, 5.0, 6.0),
    (0.0, 1.0, -9.0, -8.0),
    (0.0, 1.0, 0.0, 1e-3),
    (1.5, 0.3, 1.0, 10.0),
    (-0.3, 0.7, -0.1, 0.25),
    (0.0, 1e-7, -2e-7, 1.5e-7),
    (100.0, 7.3, 96.3, 101.1),
    (0.0, 1.0, -1.0, 8.0),
    (3.0, 2.0, -12.0, -10.9),
    (0.0, 3e4, -6e4, 6e4),
)
NORMALS = (
    (0.0, 1.0),
    (0.0, 0.02),
    (3.0, 0.1),
    (-100.0, 7.3),
    (0.0, 1e-7),
    (0.0, 5e4),
    (0.0, 2e-39),
)
RATES = (1.0, 0.1, 3.0, 1e6, 2.0**-3, 2e-5, 3e39)
THRESHOLDS = (0, 1, 1 << 31, 429496730, 3000000000, U32, 1 << 32)
RANGES = {
    "uint8": ((0, 1), (7, 2), (0, 6), (250, 6), (0, 256), (0, 255)),
    "int32": (
        (-5, 1), (-1, 2), (0, 6), (-1000, 1000), (-(1 << 31), (1 << 31) + 1),
        (-(1 << 31), 3000000000), (-(1 << 31), U32), (1 << 30, 1 << 30),
    ),
    "int64": (
        (-(1 << 63), 1), (0, 2), (-3, 6), (-(1 << 40), (1 << 31) + 1), (1, 3000000000), (0, U32),
        (0, 1 << 32), (-7, (1 << 32) + 1), (-(1 << 63), (1 << 63) + 1), (-(1 << 63), U64),
        (-(1 << 62), 1 << 63), (0, 10**18), (-1, 3 << 61),
    ),
}  # fmt: skip
KEYS = (
    (0, 0),
    (U64, U64),
    (0x2CCB564119C109D1, 0xA000D856357E4DFD),
    (0x0123456789ABCDEF, 0xFEDCBA9876543210),
    (1 << 32, 1),
)
# (position, first, count): first odd, past 2^32 blocks, to the very end of a stream (room for 64).
PLACES = (
    (0, 0, 9),
    (4, 1, 8),
    (5, 3, 17),
    (0, 0, 131),
    (1 << 33, 5, 6),
    ((1 << 34) - 8, 0, 19),
    ((1 << 56) - 64, 0, 32),
    ((1 << 56) - 67, 15, 17),
    (12, (1 << 33) + 1, 5),
    (1, 0, 1),
)


def all_parameters(distribution: str, dtype: str) -> list[tuple]:
    if distribution == "uniform":
        return [interval(low, high, dtype) for low, high in INTERVALS]
    if distribution == "trunc_normal":
        return [truncated(*chosen, dtype) for chosen in TRUNCATED]
    kind = computing(dtype)
    if distribution == "normal":
        return [(number(mean, kind), number(std, kind)) for mean, std in NORMALS]
    if distribution == "exponential":
        return [(number(1.0 / rate, kind),) for rate in RATES]
    if distribution == "bernoulli":
        return [(threshold,) for threshold in THRESHOLDS]
    return list(RANGES[dtype]) if distribution == "randint" else [()]


DTYPES = {
    "bits": ("uint32", "uint64"),
    "uniform": tuple(FORMATS),
    "normal": tuple(FORMATS),
    "exponential": tuple(FORMATS),
    "bernoulli": ("bool", "uint8", *FORMATS),
    "randint": tuple(RANGES),
}


LATER = {"trunc_normal": tuple(FORMATS)}


def draw_rows(kinds: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Every distribution and dtype; every place with some parameter, every parameter somewhere."""
    for distribution, dtypes in kinds.items():
        for dtype in dtypes:
            parameters = all_parameters(distribution, dtype)
            rounds = max(len(PLACES), len(parameters))
            fill = Filler(f"{distribution} {dtype}")
            for i in range(rounds):
                lo, hi = KEYS[i] if i < len(KEYS) else (fill.below(1 << 64), fill.below(1 << 64))
                place = PLACES[i % len(PLACES)]
                chosen = parameters[i % len(parameters)]
                yield draw_row(distribution, dtype, Draw(lo, hi, *place), chosen)


def retry_rows() -> Iterator[str]:
    """Ranges that reject about half of all words, from first places in every part of a stream."""
    halves = {"int32": (-(1 << 31), (1 << 31) + 1), "int64": (-(1 << 63), (1 << 63) + 1)}
    for dtype, chosen in halves.items():
        for (lo, hi), place in zip(KEYS, (*PLACES[1:9:2], (0, 0, 67)), strict=True):
            yield draw_row("randint", dtype, Draw(lo, hi, *place), chosen)


def real_words(width: int) -> list[int]:
    """Ends, the neighbours of powers of two and of sqrt(2) of them, of octants; and any others."""
    top, root = 1 << width, root_two(width)
    words = {0, 1, 2, 3, top - 1, top - 2, top - 3}
    for exponent in range(2, width, 3):
        words |= {(1 << exponent) + d for d in (-1, 0, 1)}
    for shift in (0, 1, 2, width // 2, width - 4):
        words |= {(root >> shift) + d for d in (-2, -1, 0, 1, 2)}
    for eighth, d in itertools.product(range(1, 8), (-(1 << (width // 4)), -1, 0, 1)):
        words.add(eighth * (top // 8) + d)
    fill = Filler(f"real {width}")
    return sorted(words) + [fill.below(top) for _ in range(16)]


def all_rows() -> list[str]:
    """Every row, in the order of the file. Append below; never insert, never change."""
    rows = []
    for dtype, function in itertools.product(
        ("float32", "float64"), ("negative_log", "cos", "sin")
    ):
        rows += [real_row(function, dtype, w) for w in real_words(FORMATS[dtype].width)]
    rows += draw_rows(DTYPES)
    rows += retry_rows()
    rows += draw_rows(LATER)
    return list(dict.fromkeys(rows))


# --- writing and checking ---------------------------------------------------------------------


def check_functions() -> None:
    """The functions are logarithm, cosine and sine: to a few units of the C library's."""
    for dtype, digits in (("float32", 22), ("float64", 49)):
        top = 1 << FORMATS[dtype].width
        for word in real_words(FORMATS[dtype].width):
            x = word | 1
            log = math.log(x / top) if 2 * x < top else math.log1p((x - top) / top)
            turn = 2 * math.pi * (word / top)
            pair = [math.cos(turn), math.sin(turn)]
            made = [negative_log(word, dtype), *cos_sin(word, dtype)]
            for ours, theirs in zip(made, [-log, *pair], strict=True):
                if abs(float(ours.exact) - theirs) > 2.0**-digits * max(1, abs(theirs)):
                    raise SystemExit(f"make_draw_vectors: {dtype} {word:x}: {ours} {theirs}")


def main(arguments: list[str]) -> int:
    golden_rows()  # raises unless the generator gives its published answers
    check_functions()
    return frozen.write(DRAWS, HEADER, all_rows(), arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
