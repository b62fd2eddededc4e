"""The native operators: valid arguments of each, and which of them it writes."""

import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from fastseed._backend.ops import perturb as perturb_op
from fastseed._backend.ops.draws import REALS
from fastseed._backend.ops.exact import SIZE
from fastseed._backend.ops.sampling import LEAST_CODE
from fastseed._backend.reference.scalar import signed

for _name in ("digest", "draws", "dropout", "exact", "keys", "sampling", "shuffle"):
    importlib.import_module(f"fastseed._backend.ops.{_name}")  # defines the operators

U64, I64, F64 = torch.uint64, torch.int64, torch.float64
Arguments = list[Any]


class Operator(NamedTuple):
    """An operator; each function makes fresh arguments."""

    written: tuple[int, ...]
    """The arguments that it writes to; none where it returns a new tensor."""
    samples: Callable[[], list[Arguments]]
    """Small ones, of each form."""
    sizes: Callable[[], Iterable[Arguments]]
    """Those of other sizes, places and dtypes, for the comparison with the reference."""
    large: Callable[[], Iterable[Arguments]] = lambda: []
    """More than a thread and a block of a grid take at once."""


# ---------------------------------------------------------------- tensors


def keys(n: int, seed: int = 0, words: int = 2) -> torch.Tensor:
    """Return keys of any bits."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**63), 2**63 - 1, (n, words), generator=generator).view(U64)


def longs(*values: int) -> torch.Tensor:
    """Return an int64 tensor."""
    return torch.tensor(values, dtype=I64)


def reals(shape: tuple[int, ...], dtype: torch.dtype, scale: float = 1.0) -> torch.Tensor:
    """Return normal numbers."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape)))
    return (numbers * scale).to(dtype)


def patterns(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of the size of weights, and any patterns of bits between."""
    numbers = reals(shape, dtype, 0.02)
    bits = perturb_op.pattern(numbers)
    words = keys(-(-len(bits) // 2), 3).view(I64).view(-1)[: len(bits)]
    bits[::3] = words[::3].to(bits.dtype)
    return numbers


NORMAL, WIDE = (1.0, 2.0), (-(2**63), signed(3 << 62))
DRAWS: dict[str, dict[torch.dtype, tuple[Any, ...]]] = {
    "bits": dict.fromkeys((torch.uint32, U64), ()),
    "uniform": dict.fromkeys(REALS, (2.0, -1.0, 0.875)),
    "normal": dict.fromkeys(REALS, NORMAL),
    "exponential": dict.fromkeys(REALS, (0.5,)),
    "trunc_normal": dict.fromkeys(REALS, (*NORMAL, -0.125, 0.5, 0.125, 0.375, -1.5, 2.0)),
    "bernoulli": dict.fromkeys((torch.bool, torch.uint8, *REALS), (3 << 30,)),
    "randint": {torch.uint8: (3, 200), torch.int32: (-(2**31), 3 << 30), I64: WIDE},
}
"""Parameters of each distribution and dtype; of the ranges a quarter of the words is rejected."""
LAYOUTS: tuple[tuple[list[int], list[int], int], ...] = (
    ([], [], 0), ([], [], 1), ([], [], 2**40 + 3), ([5, 7], [7, 1], 2), ([5, 7], [100, 1], 6),
    ([3, 4, 5], [1000, 51, 1], 3), ([6, 35], [1, 9], 0), ([4, 1000], [2**33 + 1, 1], 5),
    ([2, 1, 3, 2], [77, 5, 11, 2], 1),
    ([2, 2, 2, 2, 2, 2, 2, 3], [9001, 4001, 1501, 701, 301, 101, 31, 1], 7),
)  # fmt: skip
"""Sizes, strides and offset of what a row holds."""


def draw(
    dtype: torch.dtype, rest: tuple[Any, ...], n: int, length: int, layout: Any = LAYOUTS[0],
    positions: bool = True,
) -> Arguments:  # fmt: skip
    """Return the arguments of a draw of ``n`` streams at odd places."""
    at = torch.arange(n) * 5 + 2**33 - 20 if positions else None
    return [torch.zeros(n, length, dtype=dtype), keys(n, 1), at, *layout, *rest]


def draw_operator(name: str) -> Operator:
    """Return the operator of a distribution."""
    kinds = DRAWS[name]
    first, rest = next(iter(kinds.items()))

    def sizes() -> Iterator[Arguments]:
        for dtype, given in kinds.items():
            for n, length in ((0, 3), (1, 1), (2, 7), (67, 4), (5, 1000), (3, 1025)):
                yield draw(dtype, given, n, length, positions=n != 2)
            for layout in LAYOUTS[1:]:
                yield draw(dtype, given, 3, math.prod(layout[0]) if layout[0] else 33, layout)
        if name == "randint":  # half of the words rejected, in ranges of 32 bits
            yield draw(I64, (-5, 2**31 + 1), 3, 500)

    return Operator(
        (0,),
        lambda: [draw(first, rest, 3, 4), draw(first, rest, 3, 6, ([2, 3], [10, 1], 4), False)],
        sizes,
        lambda: (draw(dtype, given, 17, 40_003, ([], [], 3)) for dtype, given in kinds.items()),
    )


# ---------------------------------------------------------------- keys and orders

NAME = (7, -3)
PLACE = (0x2000003, 5, 11)  # rank word, worker, start
STARTS = (0, 3, *(2**bits - 50 for bits in (31, 32, 40)), -100, -7)  # the last go beyond 2**64
COUNTS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 1001)


def keys_operator(*shape: int, first: Callable[[int], list[Any]] = lambda n: []) -> Operator:
    """Return an operator that writes keys of a name: ``first`` are the arguments behind them."""

    def make(n: int, *place: int) -> Arguments:
        return [torch.zeros(n, *shape, dtype=U64), *first(n), *NAME, *place]

    def sizes() -> Iterator[Arguments]:
        for n in COUNTS:
            yield make(n, *PLACE)
        for start, worker in itertools.product(STARTS, (0, 2**32 - 1)):
            yield make(100, PLACE[0], worker, start)

    written = (0, 1) if first(0) else (0,)
    return Operator(
        written,
        lambda: [make(3, *PLACE)],
        sizes,
        lambda: [make(1 << 20, *PLACE), make(200_003, *PLACE)],
    )


def reseed_from(n: int, indices: bool = True) -> Arguments:
    """Return the arguments of ``reseed_streams_from``."""
    at = torch.arange(n) * 2**40 - 1 if indices else None
    return [keys(n), torch.ones(n, dtype=I64), keys(n, 2)[:, 0].contiguous(), at, *NAME]


def shuffle(count: int, n: int, start: int, stride: int) -> Arguments:
    """Return the arguments of ``shuffle``."""
    return [torch.zeros(count, dtype=I64), *NAME, n, start, stride]


def shuffle_positions(count: int, n: int) -> Arguments:
    """Return the arguments of ``shuffle_positions``, some of whose samples are none."""
    samples = torch.arange(-3, count - 3) * max(1, n // 700)
    return [torch.zeros(count, dtype=I64), samples, *NAME, n]


ORDERS = (1, 2, 17, 1009, 65536, 65537, 10**6 + 3, 2**32 + 1, 2**48,
          *(2**bits - 3 for bits in range(3, 48, 4)))  # fmt: skip
SHUFFLE_SIZES = [
    (count, n, n - count, 1) for n in ORDERS for count in (0, 1, 2, 511, 513) if count <= n
]
KEYS = {
    "derive_keys": keys_operator(2),
    "derive_seeds": keys_operator(),
    "reseed_streams": keys_operator(2, first=lambda n: [torch.ones(n, dtype=I64)]),
    "reseed_streams_at": keys_operator(
        2, first=lambda n: [torch.ones(n, dtype=I64), keys(1)[0].clone()]
    ),
    "reseed_streams_from": Operator(
        (0, 1),
        lambda: [reseed_from(3), reseed_from(3, False)],
        lambda: [reseed_from(n, bool(n % 3)) for n in (0, 1, 5, 33, 1001)],
        lambda: [reseed_from(70_001)],
    ),
    "mt19937_states": Operator(
        (0,),
        lambda: [[torch.zeros(3, 632, dtype=I64), keys(3)]],
        lambda: [[torch.zeros(n, 632, dtype=I64), keys(n)] for n in (0, 1, 65)],
    ),
    "shuffle": Operator(
        (0,),
        lambda: [shuffle(3, 10, 1, 2), shuffle(64, 2**48, 5, 3)],
        lambda: itertools.starmap(shuffle, [*SHUFFLE_SIZES, (7, 100, 3, 9), (300, 10**6, 4, 99)]),
        lambda: [shuffle(300_001, 10**6 + 3, 700, 2)],
    ),
    "shuffle_positions": Operator(
        (0,),
        lambda: [[torch.zeros(3, dtype=I64), longs(9, 10, 3), *NAME, 10]],
        lambda: [shuffle_positions(c, n) for n in ORDERS for c in (0, 1, 5, 511, 1025)],
        lambda: [shuffle_positions(300_001, 10**6 + 3)],
    ),
    "shuffle_of_key": Operator(
        (0,),
        lambda: [[torch.zeros(3, dtype=I64), keys(1)[0].clone()]],
        lambda: [[torch.zeros(n, dtype=I64), keys(1)] for n in (0, 1, 2, 50)],
    ),
    "advise_huge_pages": Operator((0,), lambda: [[torch.zeros(4, 2, dtype=U64)]], lambda: [],
                                  lambda: [[torch.zeros(1 << 19, dtype=U64)]]),
}  # fmt: skip


# ---------------------------------------------------------------- dropout, perturbations, sums


def dropout(
    dtype: torch.dtype, n: int, length: int, layout: Any, threshold: int, words: int = 2
) -> Arguments:
    """Return the arguments of ``dropout``."""
    numbers = patterns((n, length), dtype)
    return [numbers, keys(n, 5, words), *layout, threshold]


def dropout_sizes() -> Iterator[Arguments]:
    """Yield arguments of each dtype, also of elements that share a number."""
    shared = (([9, 7], [1, 0], 2), ([7, 9], [0, 1], 2), ([8, 4, 2], [0, 1, 0], 0))
    yield dropout(torch.float32, 1, 300_000, LAYOUTS[0], 30000)  # some numbers are the threshold
    for dtype in REALS:
        for i, length in enumerate((0, 1, 7, 8, 33, 1001)):
            layout = ([], [], 2**40 + i)
            yield dropout(dtype, 2 + i % 2, length, layout, (0, 1, 30000, 2**16)[i % 4], 2 + i % 2)
        for layout in (*LAYOUTS[3:], *shared):
            yield dropout(dtype, 2, math.prod(layout[0]), layout, 30000, 3)


def layer_key(rank_field: int, *rest: int) -> Arguments:
    """Return the arguments of ``layer_key``."""
    return [torch.zeros(3, dtype=U64), keys(1)[0].clone(), longs(5), *NAME, *rest, rank_field]


def perturb(
    dtype: torch.dtype, shape: tuple[int, ...], layout: list[int], rademacher: bool, mode: int
) -> Arguments:
    """Return the arguments of ``perturb`` for two tensors."""
    tensors = [patterns(shape, dtype), patterns((3,), dtype)]
    kept = mode in (perturb_op.RECORD, perturb_op.UNDO)
    entries = 1 if kept else 3
    steps = [(torch.arange(t.numel()).to(torch.int8) * 37).view(t.shape) for t in tensors]
    lists = [torch.zeros(2 + t.numel(), 2, dtype=I64) for t in tensors]
    return [
        tensors, steps if kept else [], lists if mode == perturb_op.RECORD else [],
        keys(2 * entries, 4), torch.tensor([1e-3, 7e-4, 3e-4], dtype=F64)[:entries].clone(),
        [*layout, 0, 0], rademacher, mode,
    ]  # fmt: skip


PERTURBED: tuple[tuple[tuple[int, ...], list[int]], ...] = (
    ((0,), [0, 0]), ((1,), [0, 0]), ((77,), [5, 0]), ((1001,), [2**40 + 3, 0]),
    ((6, 50), [11, 2, 6, 50, 100, 1]), ((10, 7), [3, 2, 10, 7, 1, 10]),
)  # fmt: skip


def perturb_sizes() -> Iterator[Arguments]:
    """Yield arguments of each dtype, layout, noise and mode."""
    for dtype, rademacher, mode in itertools.product(REALS, (False, True), range(4)):
        for shape, layout in PERTURBED:
            yield perturb(dtype, shape, layout, rademacher, mode)


def summands(dtype: torch.dtype, count: int = 9001) -> dict[str, torch.Tensor]:
    """Return values of all magnitudes and kinds, of one size, few far apart, much between."""
    normal, integers = reals((count,), dtype), patterns((3 * count,), dtype)[::3].clone()
    far = normal.clone()
    far[::1000] = torch.finfo(dtype).smallest_normal / 8
    far[7::1000] = torch.finfo(dtype).max
    return {
        "normal": normal,
        "all patterns": integers,
        "finite": integers[integers.isfinite()],
        "far": far,
        "by steps": torch.ldexp(normal.double(), torch.arange(count) % 61 - 30).to(dtype),
    }


def total(*values: torch.Tensor, factors: Iterable[torch.Tensor] = ()) -> Arguments:
    """Return the arguments of ``exact_sum``."""
    return [torch.zeros(SIZE, dtype=I64), list(values), list(factors)]


def some(count: int) -> list[torch.Tensor]:
    """Return numbers of two dtypes."""
    return [reals((count,), torch.float32)[:8].clone(), reals((count,), torch.float64)[:3].clone()]


def exact_sizes() -> Iterator[Arguments]:
    """Yield sums, sums of squares and of products of each dtype."""
    for dtype in REALS:
        for values in summands(dtype).values():
            yield total(values)
            yield total(values, factors=[values])
            yield total(values, factors=[values.flip(0).contiguous()])
        for size in (0, 1, 63, 64, 65, 4095, 4096, 4097):
            yield total(torch.ones(size, dtype=dtype))
    mixed = [torch.ones(2, dtype=dtype) for dtype in REALS]
    yield total(*mixed, factors=mixed)


SUMS = {
    "dropout": Operator(
        (),
        lambda: [dropout(torch.float32, 3, 4, LAYOUTS[0], 9000, words) for words in (2, 3)],
        dropout_sizes,
        lambda: (dropout(dtype, 1, 300_300, layout, 30000) for dtype in REALS for layout in (
            ([], [], 5), ([300, 1001], [0, 1], 5), ([300, 1001], [1, 0], 5),
        )),
    ),
    "layer_key": Operator(
        (0,),
        lambda: [layer_key(5, 3, 0, 4)],
        lambda: [layer_key(0, -1, 2**40, -7), layer_key(2**24 - 1, 2**63 - 1, 1, 2**62)],
    ),
    "perturb": Operator(
        (0, 1, 2),
        lambda: [perturb(torch.float32, (77,), [5, 0], m < 2, m) for m in (2, 0, 1, 3)],
        perturb_sizes,
        lambda: (perturb(d, (90_001,), [7, 0], False, m) for d in REALS[1:] for m in (0, 2)),
    ),
    "exact_sum": Operator(
        (0,),
        lambda: [total(*some(9), factors=some(11)), total(*some(8))],
        exact_sizes,
        lambda: [total(*summands(torch.float32, 300_001)["by steps"].split([1, 4160, 295_840]))],
    ),
}  # fmt: skip


# ---------------------------------------------------------------- tokens and digests

NUMBERS = (torch.float32, torch.bfloat16, torch.float16)
SOME_CODE = LEAST_CODE + (0xC0300000 - 0x00800000 << 28)  # of the logit 2.75 and the last token


def race(
    n: int, numbers: torch.Tensor, parts: int = 2, heat: float = 0.7, first: int = 5
) -> Arguments:
    """Return the arguments of ``sampling_race``."""
    least = torch.full((n,), LEAST_CODE)
    least[1::3] = SOME_CODE
    scores, tokens = torch.zeros(n, parts, dtype=F64), torch.zeros(n, parts, dtype=I64)
    at = keys(n, 6)[:, 0].view(I64).bitwise_and(2**56 - 1)
    return [scores, tokens, numbers, keys(n), at, torch.full((n,), heat, dtype=F64), least, first]


def threshold(n: int, numbers: torch.Tensor, wanted: float = 0.9, first: int = 3) -> Arguments:
    """Return the arguments of ``sampling_threshold``; counts are wanted from 1 on."""
    greatest = numbers.float().amax(1) if wanted < 1 else None
    least = torch.full((n,), LEAST_CODE)
    least[2::3] = SOME_CODE
    heat, needed = torch.full((n,), 0.7, dtype=F64), torch.full((n,), wanted, dtype=F64)
    return [torch.zeros(n, dtype=I64), numbers, least, needed, greatest, heat, first]


TOKENS = (1, 2, 63, 64, 65, 200, 2047, 2049, 5000)


def races() -> Iterator[Arguments]:
    """Yield races of each dtype, at all temperatures, with rows that have no winner."""
    heats, scales = (0.0, 0.7, 2.0**-20, 2.0**20), (1.0, 10.0, 1e-30, 1e-3, 1e30, 3e37)
    choices = itertools.product(NUMBERS, TOKENS, (1, 3), heats)
    for i, (dtype, size, parts, heat) in enumerate(choices):
        numbers = reals((4, size), torch.float32, scales[i % (6 if dtype == torch.float32 else 2)])
        if i % 5 == 0:  # rows without a winner
            numbers[0, size // 2], numbers[1, size // 2], numbers[2] = math.nan, math.inf, -math.inf
        yield race(4, numbers.to(dtype), parts, heat, (0, 1, 2**24 - 5000)[i % 3])
    for step in (1e-4, 0.1, 1.0):
        yield race(3, torch.arange(6000.0).expand(3, -1) * step, 1, 1.0)
    yield race(3, reals((3, 99), torch.float32)[:, :50])  # rows that lie apart
    yield race(400, torch.zeros(400, 65), 1, 1.0)  # any token may win


def thresholds() -> Iterator[Arguments]:
    """Yield thresholds of each dtype and size, by counts and by masses."""
    choices = itertools.product(NUMBERS, TOKENS, (0.0, 0.3, 0.999999, 1.0, 5.0, math.inf))
    for i, (dtype, size, wanted) in enumerate(choices):
        numbers = reals((4, size), torch.float32, (3.0, 30.0)[i % 2])
        if i % 4 == 0:
            numbers[0, size // 2], numbers[1, size // 2], numbers[2] = math.nan, math.inf, -math.inf
        given = threshold(4, numbers.to(dtype), wanted, (0, 3, 2**24 - 5000)[i % 3])
        given[5][3] = (0.0, 2.0**20)[i % 2]
        yield given
    for wanted in (1.0, 4097.0, 4999.0, 0.5):  # one logit has several digits of the token
        yield threshold(300, torch.zeros(300, 5000), wanted)
    yield threshold(3, reals((3, 99), torch.float32)[:, :50])  # rows that lie apart


def digests(*memory: torch.Tensor) -> Arguments:
    """Return the arguments of ``digest`` for whole tensors."""
    plan = torch.zeros(len(memory), 7, dtype=I64)
    plan[:, 0], plan[:, 2] = -5 + 2**62, -1
    return [torch.zeros(len(memory), 2, dtype=U64), list(memory), plan]


ROWS = (1, 7, 8, 15, 16, 17, 47, 128, 500, 2048, 2049, 4100, 5000)


def nine(n: int) -> torch.Tensor:
    """Return the numbers of ``n`` rows of nine tokens."""
    return reals((n, 9), torch.float32, 3.0)


OPERATORS: dict[str, Operator] = {
    **{f"draw_{name}": draw_operator(name) for name in DRAWS},
    **KEYS,
    **SUMS,
    "sampling_race": Operator(
        (0, 1), lambda: [race(n, nine(n)) for n in (3, 0)], races,
        lambda: [race(2, reals((2, 100_003), dtype)) for dtype in NUMBERS],
    ),
    "sampling_threshold": Operator(
        (0,), lambda: [threshold(n, nine(n), w) for n, w in ((3, 0.9), (3, 2.0), (0, 2.0))],
        thresholds, lambda: [threshold(2, reals((2, 100_003), dtype)) for dtype in NUMBERS],
    ),
    "digest": Operator(
        (0,),
        lambda: [digests(torch.arange(8), torch.arange(9)), digests()],
        lambda: [digests(*(keys(11, row, 1 + row // 8).view(torch.uint8)[:, :row].contiguous()
                           for row in ROWS), torch.tensor(3), torch.zeros(0, 4))],
        lambda: [digests(torch.arange(400_003, dtype=torch.int32), keys(5, 1, 9001))],
    ),
}  # fmt: skip
ON_CPU = ("shuffle_of_key", "advise_huge_pages")
"""Operators without a CUDA kernel."""
