"""The choice of tokens in plain NumPy: the oracle of the tests and the fallback.

``docs/spec/sampling.md`` is the specification. All arithmetic is float64, one rounding an
operation, in the order written.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import scalar
from .fp_math import LN2_64, standard_exponential
from .philox import U64, blocks

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

TOKEN_TAG = 0x40 << 24  # of the second counter word
INDEX_BITS = 28
LEAST_CODE = 0x00800000 << INDEX_BITS
END_CODE = 0xFF800000 << INDEX_BITS  # that of infinity
LN2 = np.float64(float.fromhex("0x1.62e42fefa39efp-1"))
_LOW32 = 0xFFFFFFFF
_LOG2_E = np.float64(float.fromhex("0x1.71547652b82fep+0"))
_INVERSE_FACTORIALS = tuple(
    np.float64(float.fromhex(c))
    for c in (
        "0x1p+0", "0x1p+0", "0x1p-1", "0x1.5555555555555p-3", "0x1.5555555555555p-5",
        "0x1.1111111111111p-7", "0x1.6c16c16c16c17p-10", "0x1.a01a01a01a01ap-13",
        "0x1.a01a01a01a01ap-16", "0x1.71de3a556c734p-19", "0x1.27e4fb7789f5cp-22",
        "0x1.ae64567f544e4p-26",
    )
)  # fmt: skip


def token_stream(key: tuple[int, int], position: int) -> tuple[int, int]:
    """The key of the stream whose words are those of the tokens at a position."""
    lo, hi = key
    position &= 2**64 - 1
    r = scalar.block(lo, position & _LOW32, position >> 32 | TOKEN_TAG, hi & _LOW32, hi >> 32)
    return r[0] | r[1] << 32, r[2] | r[3] << 32


def token_words(stream: tuple[int, int], tokens: U64) -> U64:
    """The 64-bit words of some tokens."""
    lo, hi = stream
    halves = []
    for second in (0, 1):
        w = (np.uint64(second), np.uint64(hi & _LOW32), np.uint64(hi >> 32))
        words = np.stack(np.broadcast_arrays(*blocks(lo, tokens >> np.uint64(2), *w)))
        halves.append(np.take_along_axis(words, (tokens & np.uint64(3)).astype(np.int64)[None], 0))
    found: U64 = (halves[0] << np.uint64(32) | halves[1])[0]
    return found


def natural_log(x: F64) -> F64:
    """ln x of normal x > 0."""
    bits = x.view(np.uint64)
    e = ((bits >> np.uint64(52)).astype(np.int64) - 1022).astype(np.float64)
    fraction = bits & np.uint64((1 << 52) - 1) | np.uint64(1 << 52)
    found: F64 = e * LN2 - standard_exponential(fraction << np.uint64(11))
    return found


def token_noise(stream: tuple[int, int], tokens: U64) -> F64:
    """The Gumbel variables of some tokens."""
    return -natural_log(standard_exponential(token_words(stream, tokens)))


def token_codes(x: F32, first: int) -> I64:
    """The codes of consecutive tokens, the first of which is ``first``."""
    bits = (x + np.float32(0)).view(np.uint32)
    order = bits ^ np.where(bits >> np.uint32(31), np.uint32(_LOW32), np.uint32(1 << 31))
    last = np.int64((1 << INDEX_BITS) - 1 - first)
    codes: I64 = (order.astype(np.int64) << INDEX_BITS) + (last - np.arange(x.size))
    return codes


def token_masses(x: F32, greatest: np.float32 | F32, temperature: float) -> I64:
    """round(2^38 exp((x - greatest) / temperature))."""
    if temperature == 0:
        greedy: I64 = (x == greatest).astype(np.int64) << 38
        return greedy
    with np.errstate(all="ignore"):
        y = (x.astype(np.float64) - np.float64(greatest)) / np.float64(temperature)
    small = ~(y >= -27) | np.isinf(y)
    y = np.where(small, 0, y)
    n = np.rint(y * _LOG2_E)
    r = (y - n * LN2_64[0]) - n * LN2_64[1]
    p = np.full_like(r, _INVERSE_FACTORIALS[-1])
    for c in _INVERSE_FACTORIALS[-2::-1]:
        p = p * r + c
    with np.errstate(invalid="ignore"):  # of numbers above the greatest one
        masses = np.rint(np.ldexp(p, n.astype(np.int64) + 38)).astype(np.int64)
    found: I64 = np.where(small, 0, masses)
    return found


def is_temperature(t: float) -> bool:
    """Return whether rows of this temperature have tokens."""
    return t == 0 or 2.0**-20 <= t <= 2.0**20


def winner(
    x: F32, key: tuple[int, int], position: int, temperature: float, threshold: int, first: int,
) -> tuple[float, int]:  # fmt: skip
    """(score, token) of the winner of some consecutive tokens of a row; token -1 is no token."""
    if np.isnan(x).any() or (x == np.inf).any() or not is_temperature(temperature):
        return float("nan"), -1
    alive = token_codes(x, first) >= max(threshold, LEAST_CODE)
    tokens = np.flatnonzero(alive)
    if not tokens.size:
        return -float("inf"), -1
    values = x[tokens].astype(np.float64) + 0.0  # -0 becomes 0
    numbers = tokens.astype(np.uint64) + np.uint64(first)
    if temperature != 0:
        noise = token_noise(token_stream(key, position), numbers)
        values = values / np.float64(temperature) + noise
    best = int(values.argmax())  # the first of equal ones
    return float(values[best]), int(numbers[best])


def threshold(x: F32, floor: int, wanted: float, first: int, masses: I64 | None) -> int:
    """Return the code from which on there are ``wanted`` codes, or that share of the masses."""
    codes = token_codes(x, first)
    alive = (codes >= max(floor, LEAST_CODE)) & (codes < END_CODE)
    order = np.flatnonzero(alive)[codes[alive].argsort()[::-1]]
    sums = np.cumsum(np.ones(len(order), np.int64) if masses is None else masses[order])
    if not len(sums) or sums[-1] == 0:
        return floor
    least = wanted if masses is None else float(np.ceil(wanted * float(sums[-1])))
    return int(codes[order[np.searchsorted(sums, min(max(least, 1), int(sums[-1])))]])
