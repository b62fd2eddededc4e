"""Make (or check) ``sampling.txt``, the known answers of sampling, version 1.

    python make_sampling_vectors.py           write sampling.txt, refusing to change a frozen row
    python make_sampling_vectors.py --check   exit 1 if the file on disk is not what this makes

Written from ``docs/spec/sampling.md`` and ``docs/spec/random.md`` alone: words are plain integers,
reals exact fractions that are rounded by hand after every operation (``exact_draws.py``). Nothing
of fastseed takes part. Tokens are compared with sorted lists, not with thresholds.
"""

import math
import struct
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import frozen  # noqa: E402
from exact_draws import FORMATS, Real, negative_log, number, power  # noqa: E402
from make_vectors import U32, Filler, block, golden_rows  # noqa: E402

SAMPLING = HERE / "sampling.txt"

HEADER = """\
# Known answers of fastseed's sampling, version 1. Made by make_sampling_vectors.py; never edited.
# lo, hi, word: 16 hex digits. Reals: bits of float32 (8 digits) or float64 (16). Others decimal.
# noise      lo hi position token  word noise
# mass       logit greatest temperature  mass
# threshold  temperature top_k top_p min_p first n  logits...  code
# race       lo hi position temperature threshold first n  logits...  token score
"""

KIND = "float64"
LN2 = number(float.fromhex("0x1.62e42fefa39efp-1"), KIND)
LN2_PARTS = [
    number(float.fromhex(c), KIND) for c in ("0x1.62e42fefa2000p-1", "0x1.9ef35793c7673p-41")
]
LOG2_E = number(float.fromhex("0x1.71547652b82fep+0"), KIND)
LEAST_CODE = 0x00800000 << 28


# --- reals ------------------------------------------------------------------------------------


def bits32(x: float) -> int:
    return int.from_bytes(struct.pack("<f", x), "little")


def bits64(x: float) -> int:
    return int.from_bytes(struct.pack("<d", x), "little")


def float32(x: float) -> float:
    return struct.unpack("<f", struct.pack("<f", x))[0]


def pattern(x: Real) -> str:
    return f"{FORMATS[KIND].bits(x.exact):016x}"


def natural_log(x: Real) -> Real:
    """e ln 2 - L(f 2^64) of x = f 2^e, f in [1/2, 1)."""
    exponent = 0
    fraction = x.exact
    while fraction >= 1:
        fraction, exponent = fraction / 2, exponent + 1
    while fraction < Fraction(1, 2):
        fraction, exponent = fraction * 2, exponent - 1
    word = fraction * power(64)
    assert word.denominator == 1
    return number(exponent, KIND) * LN2 - negative_log(int(word), KIND)


def exponential_of(r: Real) -> Real:
    total = number(Fraction(1, math.factorial(11)), KIND)
    for k in range(10, -1, -1):
        total = total * r + number(Fraction(1, math.factorial(k)), KIND)
    return total


# --- the page ---------------------------------------------------------------------------------


class Where(NamedTuple):
    """The origin of the noise of a row."""

    lo: int
    hi: int
    position: int

    def word(self, token: int) -> int:
        p = self.position
        r = block(self.lo, p & U32, p >> 32 | 0x40 << 24, self.hi & U32, self.hi >> 32)
        halves = [block(r[0] | r[1] << 32, token // 4, i, r[2], r[3])[token % 4] for i in (0, 1)]
        return halves[0] << 32 | halves[1]

    def noise(self, token: int) -> Real:
        return -natural_log(negative_log(self.word(token), KIND))

    def text(self) -> str:
        return f"{self.lo:016x} {self.hi:016x} {self.position}"


def mass(logit: float, greatest: float, temperature: float) -> int:
    if temperature == 0:
        return (logit == greatest) << 38
    if logit == -math.inf:
        return 0
    y = (number(logit, KIND) - number(greatest, KIND)) / number(temperature, KIND)
    if y.exact < -27:
        return 0
    n = round((y * LOG2_E).exact)
    r = (y - number(n, KIND) * LN2_PARTS[0]) - number(n, KIND) * LN2_PARTS[1]
    return round(exponential_of(r).exact * power(n + 38))


def code(logit: float, token: int) -> int:
    bits = bits32(logit + 0.0)
    order = bits ^ (U32 if bits >> 31 else 1 << 31)
    return order << 28 | ((1 << 28) - 1 - token)


class Filters(NamedTuple):
    temperature: float
    top_k: int
    top_p: float
    min_p: float


def limit(filters: Filters, logits: list[float]) -> Fraction:
    """The least logit that min_p keeps."""
    distance = number(float32(-math.log(filters.min_p)), KIND)
    heat = number(filters.temperature, KIND)
    return (number(max(logits), KIND) - heat * distance).exact


def survivors(filters: Filters, logits: list[float], first: int) -> list[int]:
    """The columns that survive, in order of their codes, from the greatest."""
    columns = [j for j, x in enumerate(logits) if x != -math.inf]
    columns.sort(key=lambda j: code(logits[j], first + j), reverse=True)
    if filters.min_p > 0:
        columns = [j for j in columns if Fraction(logits[j]) >= limit(filters, logits)]
    if filters.top_k > 0:
        columns = columns[: filters.top_k]
    if filters.top_p < 1:
        masses = [mass(logits[j], max(logits), filters.temperature) for j in columns]
        share = (number(filters.top_p, KIND) * number(sum(masses), KIND)).exact
        enough = min(max(math.ceil(share), 1), sum(masses))
        kept = 0
        while sum(masses[:kept]) < enough:
            kept += 1
        columns = columns[:kept]
    return columns


def threshold(filters: Filters, logits: list[float], first: int) -> int:
    """The code of the last survivor; that of the least logit where its number is not limited."""
    if filters.top_k > 0 or filters.top_p < 1:
        last = survivors(filters, logits, first)[-1]
        return code(logits[last], first + last)
    if filters.min_p == 0:
        return LEAST_CODE
    least = limit(filters, logits)
    low, high = LEAST_CODE >> 28, 0xFF7FFFFF  # orders of the finite numbers
    while low < high:
        middle = (low + high) // 2
        bits = middle ^ (1 << 31 if middle >> 31 else U32)
        if Fraction(struct.unpack("<f", bits.to_bytes(4, "little"))[0]) >= least:
            high = middle
        else:
            low = middle + 1
    return low << 28


def winner(scores: dict[int, Real]) -> tuple[int, Real]:
    best = max(score.exact for score in scores.values())
    token = min(t for t, score in scores.items() if score.exact == best)
    return token, scores[token]


# --- rows -------------------------------------------------------------------------------------


def numbers_text(values: list[float]) -> str:
    return " ".join(f"{bits32(x):08x}" for x in values)


def noise_row(at: Where, token: int) -> str:
    return f"noise {at.text()} {token} {at.word(token):016x} {pattern(at.noise(token))}"


def mass_row(logit: float, greatest: float, temperature: float) -> str:
    inputs = f"{bits32(logit):08x} {bits32(greatest):08x} {bits64(temperature):016x}"
    return f"mass {inputs} {mass(logit, greatest, temperature)}"


def threshold_row(filters: Filters, logits: list[float], first: int) -> str:
    reals = [f"{bits64(x):016x}" for x in (filters.temperature, filters.top_p, filters.min_p)]
    head = f"threshold {reals[0]} {filters.top_k} {reals[1]} {reals[2]} {first} {len(logits)}"
    return f"{head} {numbers_text(logits)} {threshold(filters, logits, first)}"


def race_row(at: Where, filters: Filters, logits: list[float], first: int) -> str:
    heat = number(filters.temperature, KIND)
    scores = {}
    for j in survivors(filters, logits, first):
        score = number(logits[j], KIND)
        if filters.temperature != 0:
            score = score / heat + at.noise(first + j)
        scores[first + j] = score
    token, score = winner(scores)
    least = threshold(filters, logits, first)
    head = f"race {at.text()} {bits64(filters.temperature):016x} {least} {first} {len(logits)}"
    return f"{head} {numbers_text(logits)} {token} {pattern(score)}"


# --- which rows -------------------------------------------------------------------------------

FILTERS = (
    Filters(1.0, 0, 1.0, 0.0),
    Filters(0.7, 5, 1.0, 0.0),
    Filters(1.3, 0, 0.9, 0.0),
    Filters(2.0, 0, 1.0, 0.05),
    Filters(1.0, 40, 0.8, 0.01),
    Filters(0.0, 3, 0.5, 0.5),
    Filters(2.0**-20, 0, 0.999, 0.0),
    Filters(2.0**20, 10**9, 0.5, 1.0),
    Filters(1.0, 1, 1e-9, 0.0),
)
FIRSTS = (0, 1, 3, 2**24 - 200)


def filler(fill: Filler) -> float:
    """About normal, of standard deviation 2, rounded to float32."""
    total = sum(fill.below(1 << 20) for _ in range(12)) / (1 << 20) - 6
    return float32(2 * total)


def rows_of_logits(fill: Filler) -> Iterator[list[float]]:
    yield [0.0]
    yield [-0.0, 0.0, -1.0, 0.0]  # ties, of two patterns
    yield [3.0] * 7
    yield [-math.inf, 1.5, -math.inf, 1.5, 1.0, -math.inf]
    for n in (2, 5, 33, 130):
        yield [filler(fill) for _ in range(n)]
    yield [float(round(filler(fill))) for _ in range(70)]  # many ties
    yield [float32(filler(fill) - 1000) for _ in range(20)]
    yield [float32(2.0**-140), 0.0, float32(3e38), float32(-3e38), float32(1e30)]
    yield [50 - 0.5 * i for i in range(120)]


def places(fill: Filler) -> Iterator[Where]:
    """Keys and positions at their ends, and any others."""
    ends = ((0, 0), (2**64 - 1, 2**64 - 1), (7, 1 << 63))
    positions = (0, 1, 2**32 - 1, 2**32, 2**56 - 1)
    for i in range(1000):
        lo, hi = ends[i] if i < 3 else (fill.below(1 << 64), fill.below(1 << 64))
        at = positions[i] if i < 5 else fill.below(1 << 56 if i % 2 else 5000)
        yield Where(lo, hi, at)


def all_rows() -> list[str]:
    """Every row, in the order of the file. Append below; never insert, never change."""
    fill = Filler("sampling")
    where = places(fill)
    rows = []
    for at in (next(where) for _ in range(24)):
        rows += [noise_row(at, t) for t in (0, 1, 2, 3, 4, 151_935, 2**24 - 1)]
    for temperature in (1.0, 0.7, 2.0**-20, 2.0**20, 0.0):
        for below in (0.0, 1e-6, 0.25, 0.34657359, 0.3465736, 1.0, 13.7, 26.99, 27.0, 27.5, 100.0):
            logit = float32(3.0 - below * (temperature or 1))
            rows.append(mass_row(logit, 3.0, temperature))
    for i in range(40):
        greatest = filler(fill)
        rows.append(mass_row(float32(greatest - fill.below(3000) / 100), greatest, 0.5 + i / 13))
    for filters in FILTERS:
        for i, logits in enumerate(rows_of_logits(fill)):
            first = FIRSTS[i % len(FIRSTS)]
            rows.append(threshold_row(filters, logits, first))
            rows.append(race_row(next(where), filters, logits, first))
    return list(dict.fromkeys(rows))


# --- writing and checking ---------------------------------------------------------------------


def check_functions() -> None:
    """The functions are what they are meant to be, to a few units of the C library's."""
    at = Where(3, 4, 5)
    for token in range(50):
        u = (at.word(token) | 1) / 2**64
        if abs(float(at.noise(token).exact) + math.log(-math.log(u))) > 1e-9:
            raise SystemExit(f"make_sampling_vectors: the noise of token {token}")
    for y in (-26.5, -3.25, -0.5, 0.0):
        if abs(mass(y, 0.0, 1.0) - math.exp(y) * 2.0**38) > 1:
            raise SystemExit(f"make_sampling_vectors: the mass of {y}")


def main(arguments: list[str]) -> int:
    golden_rows()  # raises unless the generator gives its published answers
    check_functions()
    return frozen.write(SAMPLING, HEADER, all_rows(), arguments, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
