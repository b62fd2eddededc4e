"""The kernels: every one of fastseed, in the order in which they matter if the time runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .case import NAME, NAME_KEY, OPS, RANK_WORD, WORKER, Inputs, Kernel, keys, reals

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
I32, I64, U8, U32, U64 = torch.int32, torch.int64, torch.uint8, torch.uint32, torch.uint64
AT = (*NAME_KEY, RANK_WORD, WORKER)
VOCABULARY = 151_936
LOWEST = 0x00800000 << 28  # the code from which on all finite logits are


def label(dtype: torch.dtype) -> str:
    """Return the name of a dtype."""
    return str(dtype).removeprefix("torch.")


def derivation() -> Iterator[Kernel]:
    """Keys, seeds and streams in bulk."""

    def bank(n: int) -> Inputs:
        return torch.zeros(n, 2, dtype=U64), torch.ones(n, dtype=I64)

    def both(k: torch.Tensor, p: torch.Tensor, *_: Any) -> None:
        k.zero_()
        p.zero_()

    def zero(out: torch.Tensor) -> torch.Tensor:
        return out.zero_()

    yield Kernel(
        "derive_keys", 2 * 10**7, 16, lambda n: (torch.zeros(n, 2, dtype=U64),),
        lambda out: OPS.derive_keys(out, *AT, 2**32 - 100), "memset", zero,
        headline=True, share=0.90,
    )  # fmt: skip
    yield Kernel(
        "derive_seeds", 4 * 10**7, 8, lambda n: (torch.zeros(n, dtype=U64),),
        lambda out: OPS.derive_seeds(out, *AT, 7), "memset", zero, headline=True, share=0.75,
    )  # fmt: skip
    for size, n, sets in (("1e7", 10**7, None), ("1e5", 10**5, 64)):
        yield Kernel(
            f"reseed_streams/{size}", n, 24, bank,
            lambda k, p: OPS.reseed_streams(k, p, *AT, 0), "memset of both", both,
            sets=sets, headline=sets is None, share=0.90 if sets is None else None,
        )  # fmt: skip
    yield Kernel(
        "reseed_streams_at", 10**7, 24, lambda n: (*bank(n), torch.tensor([5, 6], dtype=U64)),
        lambda k, p, s: OPS.reseed_streams_at(k, p, s, *NAME, 0, 0, 0), "memset of both", both,
        headline=True, share=0.75,
    )  # fmt: skip
    yield Kernel(
        "reseed_streams_from", 10**7, 32, lambda n: (*bank(n), torch.arange(n).view(U64)),
        lambda k, p, s: OPS.reseed_streams_from(k, p, s, None, *NAME), "memset of both", both,
    )  # fmt: skip


NORMAL, UNIFORM = (0.0, 1.0), (1.0, 0.0, 0.99999994)
TRUNCATED = (0.0, 1.0, 0.0, 0.9545, 0.02275, 0.02275, -2.0, 2.0)
Beside = Callable[..., Any]
DRAWS: tuple[tuple[str, torch.dtype, tuple[Any, ...], str, Beside | None, float | None], ...] = (
    ("bits", U32, (), "", None, 0.90),
    ("uniform", F32, UNIFORM, "torch.uniform_", lambda x, *_: x.uniform_(), 0.90),
    ("normal", F32, NORMAL, "torch.normal_", lambda x, *_: x.normal_(), 0.55),
    ("normal", BF16, NORMAL, "torch.normal_", lambda x, *_: x.normal_(), None),
    ("normal", F64, NORMAL, "torch.normal_", lambda x, *_: x.normal_(), None),
    ("uniform", BF16, (1.0, 0.0, 0.99609375), "torch.uniform_", lambda x, *_: x.uniform_(), None),
    ("exponential", F32, (1.0,), "torch.exponential_", lambda x, *_: x.exponential_(), None),
    ("trunc_normal", F32, TRUNCATED, "nn.init.trunc_normal_",
     lambda x, *_: torch.nn.init.trunc_normal_(x), None),
    ("bernoulli", U8, (1 << 31,), "torch.bernoulli_", lambda x, *_: x.bernoulli_(0.5), None),
    ("randint", I64, (0, 1000), "torch.random_", lambda x, *_: x.random_(0, 1000), None),
    ("randint", I32, (0, 1000), "torch.random_", lambda x, *_: x.random_(0, 1000), None),
)  # fmt: skip


def draw(
    name: str, dtype: torch.dtype, rows: int, length: int, parameters: tuple[Any, ...]
) -> tuple[Callable[[int], Inputs], Callable[..., Any]]:
    """Return inputs and call of a draw: ``rows`` of ``length``, or fewer values of one row."""
    operator = getattr(OPS, f"draw_{name}")

    def inputs(n: int) -> Inputs:
        count = max(1, min(rows, n // length)) if rows > 1 else 1
        width = length if rows > 1 else n
        positions = torch.arange(count, dtype=I64) * 8
        return torch.zeros(count, width, dtype=dtype), keys(count), positions

    return inputs, lambda out, k, at: operator(out, k, at, [], [], 0, *parameters)


def draws() -> Iterator[Kernel]:
    """One line, many lines, rows of odd length, short rows."""
    for name, dtype, parameters, against, beside, share in DRAWS:
        n = 3 * 10**8 // dtype.itemsize
        inputs, call = draw(name, dtype, 1, n, parameters)
        yield Kernel(
            f"{name}/{label(dtype)}/one line", n, dtype.itemsize, inputs, call, against, beside,
            headline=dtype not in (F64, I32), share=share, ratio=1.2 if share and beside else None,
        )  # fmt: skip
    few = {("uniform", F32), ("normal", F32), ("randint", I64)}
    for rows, length, kind in ((65536, 1024, "1024"), (65536, 1023, "1023"), (4 * 10**6, 4, "4")):
        for name, dtype, parameters, against, beside, _ in DRAWS:
            if (name, dtype) in few:
                inputs, call = draw(name, dtype, rows, length, parameters)
                yield Kernel(
                    f"{name}/{label(dtype)}/rows of {kind}", rows * length, dtype.itemsize, inputs,
                    call, against, beside, small=333 * length, headline=name == "normal",
                )  # fmt: skip


def dropout() -> Iterator[Kernel]:
    """Masks alone, and with the addition that follows in a network."""

    def drop(x: torch.Tensor, k: torch.Tensor) -> Any:
        return OPS.dropout(x, k, [], [], 0, 6554)

    for dtype in (F32, BF16):

        def inputs(n: int, dtype: torch.dtype = dtype) -> Inputs:
            return reals(n, dtype), keys(1)

        yield Kernel(
            f"dropout/{label(dtype)}", 2 * 10**8 // dtype.itemsize, 2 * dtype.itemsize, inputs,
            drop, "torch.dropout", lambda x, *_: torch.dropout(x, 0.1, True), reads=True,
            headline=True, ratio=1.0,
        )  # fmt: skip
        yield Kernel(
            f"dropout + add/{label(dtype)}/16 MB", 16 * 2**20 // dtype.itemsize,
            5 * dtype.itemsize, inputs, lambda x, k: drop(x, k).add_(x), "torch.dropout + add_",
            lambda x, *_: torch.dropout(x, 0.1, True).add_(x), reads=True,
        )  # fmt: skip
    yield Kernel(
        "layer_key", 1, 24,
        lambda n: (torch.zeros(3, dtype=U64), torch.tensor([5, 6], dtype=U64), torch.tensor([3])),
        lambda out, scope, count: OPS.layer_key(out, scope, count, *NAME, 0, 1, 9, 2), small=1,
    )  # fmt: skip


def exact_sums() -> Iterator[Kernel]:
    """Sizes and distributions vary, because atomics may be the limit."""

    def total() -> torch.Tensor:
        return torch.zeros(138, dtype=I64)

    def norm(values: list[torch.Tensor], *_: Any) -> Any:
        return torch._foreach_norm(values)

    for name, dtype, n, parts, kind in (
        ("1e8", F32, 10**8, 1, "normal"), ("1e6", F32, 10**6, 1, "normal"),
        ("32 x 1e6", F32, 32 * 10**6, 32, "normal"), ("1e7, sparse", F32, 10**7, 1, "sparse"),
        ("1e7, wide", F32, 10**7, 1, "wide"), ("1e8", BF16, 10**8, 1, "normal"),
        ("1e7", F64, 10**7, 1, "normal"),
    ):  # fmt: skip

        def inputs(
            n: int, dtype: torch.dtype = dtype, parts: int = parts, kind: str = kind
        ) -> Inputs:
            return list(reals(max(n // parts, 1) * parts, dtype, kind).chunk(parts)), total()

        yield Kernel(
            f"exact squares/{label(dtype)}/{name}", n, dtype.itemsize, inputs,
            lambda values, out: OPS.exact_sum(out, values, values), "_foreach_norm", norm,
            reads=True, sets=2, headline=dtype == F32,
        )  # fmt: skip
    yield Kernel(
        "exact sum/float32/1e8", 10**8, 4, lambda n: ([reals(n, F32)], total()),
        lambda values, out: OPS.exact_sum(out, values, []), "torch.sum",
        lambda values, _: values[0].sum(), reads=True, sets=2,
    )  # fmt: skip


def perturbations() -> Iterator[Kernel]:
    """Noise added, and recorded so that it can be taken back."""

    def scale() -> torch.Tensor:
        return torch.tensor([1e-3], dtype=F64)

    for dtype in (F32, BF16):
        for rademacher in (False, True):

            def add(p: Any, k: Any, s: Any, rademacher: bool = rademacher) -> None:
                OPS.perturb([p], [], [], k, s, [0, 0], rademacher, 0)

            yield Kernel(
                f"perturb/{label(dtype)}/{'rademacher' if rademacher else 'normal'}", 5 * 10**7,
                2 * dtype.itemsize, lambda n, dtype=dtype: (reals(n, dtype), keys(1), scale()), add,
                "add_(randn_like)", lambda p, *_: p.add_(torch.randn_like(p), alpha=1e-3),
                reads=True, headline=not rademacher, ratio=1.0,
            )  # fmt: skip

    def recorded(n: int) -> Inputs:
        rows = torch.zeros(n // 100 + 64, 2, dtype=I64)
        return reals(n, BF16) * 0.02, torch.zeros(n, dtype=torch.int8), rows, keys(1), scale()

    def record(p: Any, steps: Any, rows: Any, k: Any, s: Any) -> None:
        rows.zero_()
        OPS.perturb([p], [steps], [rows], k, s, [0, 0], False, 2)
        rows[1:].zero_()  # in any order

    yield Kernel(
        "perturb, recorded/bfloat16", 5 * 10**7, 5, recorded, record, "clone",
        lambda p, *_: p.clone(), reads=True,
    )  # fmt: skip


def orders() -> Iterator[Kernel]:
    """A shuffle and its inverse."""
    for size, n in (("1e8", 10**8), ("65536", 65536)):
        yield Kernel(
            f"shuffle/{size}", n, 8, lambda count: (torch.zeros(count, dtype=I64),),
            lambda out, n=n: OPS.shuffle(out, 5, -7, n, 0, 1), "torch.randperm",
            lambda out: torch.randperm(len(out), device=out.device), small=min(n, 50_001),
            headline=n == 10**8,
        )  # fmt: skip
    yield Kernel(
        "shuffle_positions/1e8", 2 * 10**7, 16,
        lambda n: (torch.zeros(n, dtype=I64), torch.arange(n) * 4),
        lambda out, samples: OPS.shuffle_positions(out, samples, 5, -7, 10**8), reads=True,
    )  # fmt: skip


def digests() -> Iterator[Kernel]:
    """One tensor, and many in one launch by a table from the host."""
    for size, count, each in (("1e8", 1, 10**8), ("1000 x 1e5", 1000, 10**5)):
        plan = torch.tensor([[3, 0, -1, 0, 0, 0, 0]] * count, dtype=I64)

        def inputs(n: int, count: int = count) -> Inputs:
            parts = list(reals(n // count * count, F32).chunk(count))
            return torch.zeros(count, 2, dtype=U64), parts

        yield Kernel(
            f"digest/{size}", count * each, 4, inputs,
            lambda sums, parts, plan=plan: OPS.digest(sums, parts, plan),
            "torch.sum" if count == 1 else "_foreach_norm",
            lambda _, parts: parts[0].sum() if len(parts) == 1 else torch._foreach_norm(parts),
            reads=True, sets=2, captured=False, headline=True, ratio=0.85 if count == 1 else None,
        )  # fmt: skip


def sampling() -> Iterator[Kernel]:
    """Tokens of a vocabulary, and the digits of their thresholds."""
    for rows, dtype in ((64, F32), (64, BF16), (1, F32)):

        def inputs(n: int, rows: int = rows, dtype: torch.dtype = dtype) -> Inputs:
            width = n // rows
            parts = -(-width // 4096)
            logits = (reals(rows * width, F32) * 3).view(rows, width).to(dtype)
            return (
                torch.zeros(rows, parts, dtype=F64), torch.zeros(rows, parts, dtype=I64), logits,
                keys(rows), torch.arange(rows), torch.ones(rows, dtype=F64),
                torch.full((rows,), LOWEST),
            )  # fmt: skip

        yield Kernel(
            f"sampling_race/{label(dtype)}/{rows} x {VOCABULARY}", rows * VOCABULARY,
            dtype.itemsize, inputs, lambda *given: OPS.sampling_race(*given, 0),
            "multinomial(softmax)",
            lambda s, t, x, *_: torch.multinomial(x.float().softmax(-1), 1), reads=True,
            small=rows * 5001, headline=rows == 64,
        )  # fmt: skip
    for name, wanted in (("top_k 50", 50.0), ("top_p 0.9", 0.9)):

        def searched(n: int, wanted: float = wanted) -> Inputs:
            return (
                torch.zeros(64, dtype=I64), (reals(n // 64 * 64, F32) * 3).view(64, -1),
                torch.full((64,), LOWEST), torch.full((64,), wanted, dtype=F64),
                torch.full((64,), 15.0) if wanted < 1 else None, torch.ones(64, dtype=F64),
            )  # fmt: skip

        yield Kernel(
            f"sampling_threshold/{name}", 64 * VOCABULARY, 4, searched,
            lambda *given: OPS.sampling_threshold(*given, 0), "sort",
            lambda out, x, *_: x.sort(-1), reads=True, small=64 * 5001,
        )  # fmt: skip


def kernels() -> list[Kernel]:
    """Return all of them."""
    subjects = (derivation, draws, dropout, exact_sums, perturbations, orders, digests, sampling)
    return [kernel for subject in subjects for kernel in subject()]
