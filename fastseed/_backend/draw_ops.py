"""The registered operators: ``torch.ops.fastseed.draw_uniform`` and the others.

The native library defines them (csrc/ops/schemas.cpp). Without it they are defined here on the CPU,
in NumPy, with the schemas that follow from the signatures below. All write into their first one or
two arguments and return nothing.
"""
# Annotations are read at run time: no `from __future__ import annotations` here.

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import native, tensors
from .reference import draws, philox
from .reference import shuffle as reference_shuffle

_LOW64 = 2**64 - 1
NATIVE_ONLY = (
    *("derive_keys", "derive_seeds", "derive_seed_grid", "advise_huge_pages"),
    *("digest", "digest_tiles"),
)

IMPLEMENTATIONS: dict[str, Callable[..., None]] = {}
"""The operators in NumPy, by name."""
SCHEMAS: dict[str, str] = {}
"""The schema of each operator, without its name."""


def _operator(*written: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the NumPy implementation of the operator of that name, which writes ``written``."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        name = function.__name__
        names = function.__code__.co_varnames

        @functools.wraps(function)
        def checked(*arguments: Any) -> None:
            for argument, value in zip(names, arguments, strict=False):
                if isinstance(value, Tensor):
                    tensors.check_dense(name, argument, value)
            function(*arguments)
            for tensor in arguments[: len(written)]:
                if not tensor.is_inference():
                    torch.autograd.graph.increment_version(tensor)

        schema = torch.library.infer_schema(function, mutates_args=written)
        SCHEMAS[name] = schema.replace("SymInt", "int")
        IMPLEMENTATIONS[name] = checked
        return checked

    return register


# ---------------------------------------------------------------- random numbers

# values `start` to `start + count - 1` of each row, (n, count)
Values = Callable[[npt.NDArray[Any], npt.NDArray[Any], int, int], npt.NDArray[Any]]


def _runs(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, Iterator[int]]:
    """(length, first value of each) of the runs of consecutive values, row by row."""
    dims: list[list[int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if dims and dims[-1][1] == size * stride:  # continues the dimension before
            dims[-1] = [dims[-1][0] * size, stride]
        else:
            dims.append([size, stride])
    length = dims.pop()[0] if dims and dims[-1][1] == 1 else 1
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
    length, starts = _runs(sizes, strides)
    for run, start in enumerate(starts):
        found = values(keys.numpy(), at.view(np.uint64), offset + start, length)
        rows[:, run * length : (run + 1) * length] = torch.from_numpy(found)


def _kind(out: Tensor) -> str:
    return str(out.dtype).removeprefix("torch.")


@_operator("out")
def draw_bits(
    out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: list[int], strides: list[int], offset: int,
) -> None:  # fmt: skip
    """Fill with words of the streams."""
    words = 2 if out.dtype == torch.uint64 else 1
    values = functools.partial(draws.bits, words=words)
    _fill(out, keys, positions, sizes, strides, offset, values)


@_operator("out")
def draw_uniform(
    out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: list[int], strides: list[int], offset: int, span: float, shift: float, cap: float,
) -> None:  # fmt: skip
    """Fill with min(u * span + shift, cap)."""
    values = functools.partial(draws.uniform, kind=_kind(out), span=span, shift=shift, cap=cap)
    _fill(out, keys, positions, sizes, strides, offset, values)


@_operator("out")
def draw_normal(
    out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: list[int], strides: list[int], offset: int, mean: float, std: float,
) -> None:  # fmt: skip
    """Fill with z * std + mean."""
    values = functools.partial(draws.normal, kind=_kind(out), mean=mean, std=std)
    _fill(out, keys, positions, sizes, strides, offset, values)


@_operator("out")
def draw_exponential(
    out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: list[int], strides: list[int], offset: int, scale: float,
) -> None:  # fmt: skip
    """Fill with -ln u * scale."""
    values = functools.partial(draws.exponential, kind=_kind(out), scale=scale)
    _fill(out, keys, positions, sizes, strides, offset, values)


@_operator("out")
def draw_bernoulli(
    out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: list[int], strides: list[int], offset: int, threshold: int,
) -> None:  # fmt: skip
    """Fill with ones where the word is below ``threshold`` (of 2**32), else zeros."""
    values = functools.partial(draws.bernoulli, threshold=threshold)
    _fill(out, keys, positions, sizes, strides, offset, values)


@_operator("out")
def draw_randint(
    out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: list[int], strides: list[int], offset: int, low: int, range: int,
) -> None:  # fmt: skip
    """Fill with unbiased integers of [low, low + range)."""
    values = functools.partial(draws.randint, low=low, range_=range & _LOW64)
    _fill(out, keys, positions, sizes, strides, offset, values)


# ---------------------------------------------------------------- keys


def _pair(low: int, high: int) -> tuple[int, int]:
    """Return two integers of a schema as the unsigned ones with the same bits."""
    return low & _LOW64, high & _LOW64


def _name_key(scope: Tensor, name_lo: int, name_hi: int) -> philox.NameKey:
    key, tweak = scope.tolist()
    return philox.name_key((key, tweak), _pair(name_lo, name_hi))


def _derive(out: Tensor, name: philox.NameKey, rank_word: int, worker: int, start: int) -> None:
    out.numpy()[:] = philox.derive_keys(name, rank_word, worker, start & _LOW64, len(out), domain=0)


@_operator("out")
def derive_keys_at(
    out: Tensor, scope: Tensor, name_lo: int, name_hi: int, rank_word: int, worker: int, start: int
) -> None:
    """Write the keys of consecutive indices at a scope, (n, 2)."""
    _derive(out, _name_key(scope, name_lo, name_hi), rank_word, worker, start)


@_operator("out")
def derive_seeds_at(
    out: Tensor, scope: Tensor, name_lo: int, name_hi: int, rank_word: int, worker: int, start: int
) -> None:
    """Write the low halves of the same keys, (n,)."""
    keys = torch.empty(len(out), 2, dtype=torch.uint64, device="cpu")
    _derive(keys, _name_key(scope, name_lo, name_hi), rank_word, worker, start)
    out.copy_(keys[:, 0])


@_operator("keys", "positions")
def reseed_streams(
    keys: Tensor, positions: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Give each stream its key under a name's key, and position 0."""
    _derive(keys, _pair(key, tweak), rank_word, worker, start)
    positions.zero_()


@_operator("keys", "positions")
def reseed_streams_at(
    keys: Tensor, positions: Tensor, scope: Tensor,
    name_lo: int, name_hi: int, rank_word: int, worker: int, start: int,
) -> None:  # fmt: skip
    """Give each stream its key at a scope that is a tensor, and position 0."""
    _derive(keys, _name_key(scope, name_lo, name_hi), rank_word, worker, start)
    positions.zero_()


@_operator("keys", "positions")
def reseed_streams_from(
    keys: Tensor, positions: Tensor, seeds: Tensor, indices: Tensor | None,
    name_lo: int, name_hi: int,
) -> None:  # fmt: skip
    """Give each stream the key of its own master seed and index."""
    rank_word = philox.SHARED_RANK | philox.DOMAIN_STREAM << 24
    at = [0] * len(keys) if indices is None else indices.tolist()
    for row, (seed, i) in enumerate(zip(seeds.tolist(), at, strict=True)):
        scope = philox.scope_key(seed, 0, 0, 0)
        name = philox.name_key(scope, _pair(name_lo, name_hi))
        _derive(keys[row : row + 1], name, rank_word, 0, i)
    positions.zero_()


@_operator("out")
def shuffle(out: Tensor, lo: int, hi: int, n: int, start: int, stride: int) -> None:
    """Write the numbers at positions start, start + stride, ... of the order of [0, n)."""
    key = lo & _LOW64 | (hi & _LOW64) << 64
    out.numpy()[:] = reference_shuffle.indices(key, n, start, stride, len(out))


# ---------------------------------------------------------------- registration


def _fake(*given: Any) -> None:
    """Do what the operators do to tensors without data: nothing."""
    devices = {t.device for t in given if isinstance(t, Tensor)}
    if len(devices) > 1:
        raise RuntimeError(f"fastseed: tensors must be on one device, got {devices}")


def _batched(name: str, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """Fill a batch under :func:`torch.vmap`: its keys are those of one call with more rows."""
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


_library: Any = None  # its registrations live as long as it does


def _register() -> None:
    global _library
    _library = torch.library.Library("fastseed", "FRAGMENT")  # type: ignore[no-untyped-call]
    if native.kernels is None:
        for name, schema in SCHEMAS.items():
            _library.define(name + schema)
            _library.impl(name, IMPLEMENTATIONS[name], "CPU")
    for name in (*SCHEMAS, *(() if native.kernels is None else NATIVE_ONLY)):
        torch.library.register_fake(f"fastseed::{name}", _fake, lib=_library)
        if name.startswith("draw_"):
            rule = functools.partial(_batched, name)
            torch.library.register_vmap(f"fastseed::{name}", rule, lib=_library)


_register()

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
