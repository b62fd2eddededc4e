"""What a block of ``random.keyed`` draws, from the text of the specification alone.

Written from the section "Blocks" of ``docs/spec/random.md`` and from ``docs/spec/dropout.md``, on
the exact fractions and plain integers of the programs beside it. It imports nothing of fastseed.
"""

import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import exact_draws
from exact_draws import Draw, number
from make_draw_vectors import interval
from make_dropout_vectors import number_of
from make_vectors import Order, key_at, scope_of

STREAM = 2


class Block(NamedTuple):
    """A block, by the point of the job at which it is entered."""

    master: int
    task: int
    epoch: int
    step: int
    rank: int
    name: str
    index: int
    worker: int = 0

    def key(self, k: int) -> tuple[int, int]:
        """The key of draw k."""
        scope = scope_of(self.master, self.task, self.epoch, self.step)
        index = (self.index << 24) + k
        return key_at(scope, f"keyed/{self.name}", self.rank, self.worker, index, STREAM)

    def draw(self, k: int, n: int) -> Draw:
        """The first n values of draw k."""
        return Draw(*self.key(k), 0, 0, n)


def uniform(at: Draw, dtype: str, low: float, high: float) -> list[Fraction]:
    parameters = interval(low, high, dtype)
    return [exact_draws.uniform(at, dtype, j, *parameters) for j in at.indices()]


def normal(at: Draw, dtype: str, mean: float, std: float) -> list[Fraction]:
    kind = exact_draws.computing(dtype)
    given = number(mean, kind), number(std, kind)
    return [exact_draws.normal(at, dtype, j, *given) for j in at.indices()]


def randint(at: Draw, low: int, high: int) -> list[Fraction]:
    return [exact_draws.randint(at, "int64", j, low, high - low) for j in at.indices()]


def bernoulli(at: Draw, p: list[float]) -> list[int]:
    """Of a tensor of probabilities, and of one that is repeated."""
    return [int(at.value(j, 1) < round(Fraction(p[j]) * 2**32)) for j in at.indices()]


def dropout(at: Draw, p: float) -> list[Fraction]:
    """Of ones in float32: zeros, and the scale rounded once to float64 and once to float32."""
    threshold = min(max(round(Fraction(p) * 2**16), 1), 2**16 - 1)
    scale = number(65536 / (65536 - threshold), "float32").exact
    stays = (number_of(at.lo, at.hi, j) >= threshold for j in at.indices())
    return [scale if each else Fraction(0) for each in stays]


def channels(at: Draw, p: float, size: int) -> list[Fraction]:
    """Of channels of so many elements."""
    return [value for value in dropout(at, p) for _ in range(size)]


def geometric(at: Draw, p: float) -> list[int]:
    c = -1 / math.log1p(-p)
    found = [exact_draws.exponential(at, "float64", j, number(1, "float64")) for j in at.indices()]
    return [math.floor(float(e) * c) + 1 for e in found]


def cauchy(at: Draw, median: float, sigma: float) -> list[float]:
    z = [float(x) for x in normal(at._replace(count=2 * at.count), "float64", 0.0, 1.0)]
    return [z[2 * j] / z[2 * j + 1] * sigma + median for j in at.indices()]


def randperm(at: Draw, n: int) -> list[int]:
    order = Order((at.lo, at.hi), n)
    return [order.at(i) for i in range(n)]
