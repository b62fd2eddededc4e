"""The registered operators of random numbers and keys: ``torch.ops.fastseed.draw_uniform``, ...

``.operators`` says where their implementations are.
"""
# Annotations are read at run time: no `from __future__ import annotations` here.

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from . import native, op_checks
from .operators import checked, define, fake, operator, pair
from .reference import draws, philox
from .reference import shuffle as reference_shuffle
from .reference.philox import Array

_LOW64 = 2**64 - 1

# ---------------------------------------------------------------- random numbers

# values `start` to `start + count - 1` of each row, (n, count)
Values = Callable[[Array, Array, int, int], Array]


def runs(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, Iterator[int]]:
    """Return (length, first value of each) of the runs of consecutive values, row by row."""
    length, dims = op_checks.runs_of(sizes, strides)
    starts = np.zeros(1, np.int64)
    for size, stride in dims:
        starts = (starts[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return length, iter(starts.tolist())


def _fill(
    out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: Sequence[int], strides: Sequence[int], offset: int, values: Values,
) -> None:  # fmt: skip
    if out.numel() == 0:
        return
    n = len(keys)
    rows = out.view(n, -1)
    if not sizes:
        sizes, strides = [rows.size(1)], [1]
    at = np.zeros(n, np.int64) if positions is None else positions.numpy()
    length, starts = runs(sizes, strides)
    for run, start in enumerate(starts):
        found = values(keys.numpy(), at.view(np.uint64), offset + start, length)
        rows[:, run * length : (run + 1) * length] = torch.from_numpy(found)


def _batched(name: str, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """Fill a batch under ``torch.vmap``: its keys are those of one call with more rows."""
    out, keys, positions, *rest = arguments
    if in_dims[0] is None:
        raise ValueError(
            f"fastseed.{name}: out must be mapped over by vmap where keys or positions are, "
            "got one tensor for all of them"
        )
    rows = [
        t if t is None else (t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0))
        for t, d in zip((keys, positions), in_dims[1:3], strict=True)
    ]
    # as many rows of keys for each example of the batch
    keys, positions = (t if t is None else t.flatten(0, 1).contiguous() for t in rows)
    target = out.movedim(in_dims[0], 0)
    filled = (
        target
        if target.is_contiguous()
        else torch.empty_like(target, memory_format=torch.contiguous_format)
    )
    getattr(torch.ops.fastseed, name)(filled, keys, positions, *rest)
    if filled is not target:
        target.copy_(filled)
    return None, None


_PARAMETERS = {
    "bits": ("", ()),
    "uniform": ("float", ("span", "shift", "cap")),
    "normal": ("float", ("mean", "std")),
    "exponential": ("float", ("scale",)),
    "trunc_normal": (
        "float", ("mean", "std", "middle", "span", "below", "above", "low", "high"),
    ),
    "bernoulli": ("int", ("threshold",)),
    "randint": ("int", ("low", "range")),
}  # fmt: skip
"""The type and the names of each distribution's parameters."""


def _define_draw(name: str, kind: str, parameter_names: Sequence[str]) -> None:
    """Define ``draw_<name>``, whose values ``.reference.draws`` computes."""
    function = getattr(draws, name)

    def draw(
        out: Tensor, keys: Tensor, positions: Tensor | None,
        sizes: Sequence[int], strides: Sequence[int], offset: int, *parameters: object,
    ) -> None:  # fmt: skip
        if name == "bits":
            parameters = (2 if out.dtype == torch.uint64 else 1,)
        elif name == "randint":
            parameters = (parameters[0], cast(int, parameters[1]) & _LOW64)
        elif name != "bernoulli":
            parameters = (str(out.dtype).removeprefix("torch."), *parameters)
        _fill(out, keys, positions, sizes, strides, offset, lambda *at: function(*at, *parameters))

    op = f"draw_{name}"
    names = ("out", "keys", "positions", "sizes", "strides", "offset", *parameter_names)
    checked(op, draw, names, 1)
    define(
        op,
        "(Tensor(a0!) out, Tensor keys, Tensor? positions, int[] sizes, int[] strides, int offset"
        + "".join(f", {kind} {parameter}" for parameter in parameter_names)
        + ") -> ()",
    )
    rule = functools.partial(_batched, op)
    torch.library.register_vmap(f"fastseed::{op}", rule, lib=native.library)


for _name, (_kind, _names) in _PARAMETERS.items():
    _define_draw(_name, _kind, _names)


# ---------------------------------------------------------------- keys


def _name_key(scope: Tensor, name_lo: int, name_hi: int) -> philox.NameKey:
    key, tweak = scope.tolist()
    return philox.name_key((key, tweak), pair(name_lo, name_hi))


def _derive(out: Tensor, name: philox.NameKey, rank_word: int, worker: int, start: int) -> None:
    out.numpy()[:] = philox.derive_keys(name, rank_word, worker, start & _LOW64, len(out), domain=0)


@operator("out")
def derive_keys(out: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int) -> None:
    """Write the keys of consecutive indices, (n, 2)."""
    _derive(out, pair(key, tweak), rank_word, worker, start)


@operator("out")
def derive_seeds(
    out: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Write the low halves of the same keys, (n,)."""
    at = (rank_word, worker, start & _LOW64, len(out))
    out.numpy()[:] = philox.derive_seeds(pair(key, tweak), *at, domain=0)


@operator("keys", "positions")
def reseed_streams(
    keys: Tensor, positions: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Give each stream its key under a name's key, and position 0."""
    _derive(keys, pair(key, tweak), rank_word, worker, start)
    positions.zero_()


@operator("keys", "positions")
def reseed_streams_at(
    keys: Tensor, positions: Tensor, scope: Tensor,
    name_lo: int, name_hi: int, rank_word: int, worker: int, start: int,
) -> None:  # fmt: skip
    """Give each stream its key at a scope that is a tensor, and position 0."""
    _derive(keys, _name_key(scope, name_lo, name_hi), rank_word, worker, start)
    positions.zero_()


@operator("keys", "positions")
def reseed_streams_from(
    keys: Tensor, positions: Tensor, seeds: Tensor, indices: Tensor | None,
    name_lo: int, name_hi: int,
) -> None:  # fmt: skip
    """Give each stream the key of its own master seed and index."""
    rank_word = philox.SHARED_RANK | philox.DOMAIN_STREAM << 24
    at = [0] * len(keys) if indices is None else indices.tolist()
    for row, (seed, i) in enumerate(zip(seeds.tolist(), at, strict=True)):
        scope = philox.scope_key(seed, 0, 0, 0)
        name = philox.name_key(scope, pair(name_lo, name_hi))
        _derive(keys[row : row + 1], name, rank_word, 0, i)
    positions.zero_()


@operator("out")
def shuffle(out: Tensor, lo: int, hi: int, n: int, start: int, stride: int) -> None:
    """Write the numbers at positions start, start + stride, ... of the order of [0, n)."""
    key = lo & _LOW64 | (hi & _LOW64) << 64
    out.numpy()[:] = reference_shuffle.indices(key, n, start, stride, len(out))


# ---------------------------------------------------------------- native code alone


def _fake_digest(sums: Tensor, memory: Sequence[Tensor], plan: Tensor) -> None:
    """Do nothing; the plan of ``digest`` is on the CPU."""
    fake(sums, *memory)


define("digest", "(Tensor(a0!) sums, Tensor[] memory, Tensor plan) -> ()", _fake_digest)
define(
    "derive_seed_grid",
    "(Tensor(a0!) out, Tensor indices, Tensor workers, Tensor ranks, int key, int tweak) -> ()",
)
define("advise_huge_pages", "(Tensor(a0!) out) -> ()")

has_cuda: bool = torch._C._dispatch_has_kernel_for_dispatch_key("fastseed::draw_bits", "CUDA")
"""Return whether the operators were built for CUDA devices, whatever this machine has."""

BETWEEN_REPLAYS = (
    "call it between replays, which read the seed again, or use a StreamBank, whose "
    "reseed_from_scope can be captured"
)
"""The way out for functions that seed torch's own generators."""


def refuse_capture(function: str, device: torch.device, instead: str) -> None:
    """RuntimeError, naming what to do ``instead``, while a CUDA graph is captured."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"fastseed.{function}: must not be called while a CUDA graph is captured, which would "
            f"keep one key for ever; {instead}"
        )
