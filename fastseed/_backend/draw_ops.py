"""The registered operators: ``torch.ops.fastseed.draw_uniform`` and the others.

The native library defines them (csrc/ops/schemas.cpp). Without it they are defined here on the CPU,
in NumPy, with the same schemas. All write into their first one or two arguments and return nothing.
"""
# Annotations are read at run time: no `from __future__ import annotations` here.

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import native, op_checks, tensors
from .reference import draws, philox
from .reference import shuffle as reference_shuffle

_LOW64 = 2**64 - 1
NATIVE_ONLY = ("derive_seed_grid", "advise_huge_pages", "digest")

IMPLEMENTATIONS: dict[str, Callable[..., None]] = {}
"""The operators in NumPy, by name."""
SCHEMAS: dict[str, str] = {}
"""The schema of each operator, without its name."""


def _checked(
    name: str, function: Callable[..., None], names: Sequence[str], written: int
) -> Callable[..., None]:
    """Check the arguments before ``function``, and count a write to the first ones after it."""
    check = op_checks.CHECKS.get(name, op_checks.draw if name.startswith("draw_") else None)

    def checked(*arguments: Any) -> None:
        for argument, value in zip(names, arguments, strict=False):
            if isinstance(value, Tensor):
                tensors.check_dense(name, argument, value)
        if check is not None:
            check(name, *arguments)
        # operators are below autograd, and write to inference tensors too
        with torch.inference_mode():
            function(*(v.detach() if isinstance(v, Tensor) else v for v in arguments))
        for tensor in arguments[:written]:
            if not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)

    return checked


def numpy_operator(
    function: Callable[..., None], written: Sequence[str]
) -> tuple[str, Callable[..., None]]:
    """Return the schema of a NumPy implementation that writes ``written``, and what to register."""
    names = function.__code__.co_varnames
    schema = torch.library.infer_schema(function, mutates_args=written)
    checked = _checked(function.__name__, function, names, len(written))
    return schema.replace("SymInt", "int"), checked


def _operator(*written: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the NumPy implementation of the operator of that name, which writes ``written``."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        name = function.__name__
        SCHEMAS[name], IMPLEMENTATIONS[name] = numpy_operator(function, written)
        return IMPLEMENTATIONS[name]

    return register


# ---------------------------------------------------------------- random numbers

# values `start` to `start + count - 1` of each row, (n, count)
Values = Callable[[npt.NDArray[Any], npt.NDArray[Any], int, int], npt.NDArray[Any]]


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


_ARGUMENTS = (
    "Tensor(a0!) out, Tensor keys, Tensor? positions, int[] sizes, int[] strides, int offset"
)
_PARAMETERS = {
    "bits": "",
    "uniform": ", float span, float shift, float cap",
    "normal": ", float mean, float std",
    "exponential": ", float scale",
    "trunc_normal": ", float mean, float std, float middle, float span, float below, float above"
    ", float low, float high",
    "bernoulli": ", int threshold",
    "randint": ", int low, int range",
}


def _add_draw(name: str) -> None:
    """Register ``draw_<name>``, whose values ``.reference.draws`` computes."""
    function = getattr(draws, name)

    def draw(
        out: Tensor, keys: Tensor, positions: Tensor | None,
        sizes: Sequence[int], strides: Sequence[int], offset: int, *parameters: Any,
    ) -> None:  # fmt: skip
        if name == "bits":
            parameters = (2 if out.dtype == torch.uint64 else 1,)
        elif name == "randint":
            parameters = (parameters[0], parameters[1] & _LOW64)
        elif name != "bernoulli":
            parameters = (str(out.dtype).removeprefix("torch."), *parameters)
        _fill(out, keys, positions, sizes, strides, offset, lambda *at: function(*at, *parameters))

    SCHEMAS[f"draw_{name}"] = f"({_ARGUMENTS}{_PARAMETERS[name]}) -> ()"
    names = ("out", "keys", "positions")
    IMPLEMENTATIONS[f"draw_{name}"] = _checked(f"draw_{name}", draw, names, 1)


for _name in _PARAMETERS:
    _add_draw(_name)


# ---------------------------------------------------------------- keys


def pair(low: int, high: int) -> tuple[int, int]:
    """Return two integers of a schema as the unsigned ones with the same bits."""
    return low & _LOW64, high & _LOW64


def _name_key(scope: Tensor, name_lo: int, name_hi: int) -> philox.NameKey:
    key, tweak = scope.tolist()
    return philox.name_key((key, tweak), pair(name_lo, name_hi))


def _derive(out: Tensor, name: philox.NameKey, rank_word: int, worker: int, start: int) -> None:
    out.numpy()[:] = philox.derive_keys(name, rank_word, worker, start & _LOW64, len(out), domain=0)


@_operator("out")
def derive_keys(out: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int) -> None:
    """Write the keys of consecutive indices, (n, 2)."""
    _derive(out, pair(key, tweak), rank_word, worker, start)


@_operator("out")
def derive_seeds(
    out: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Write the low halves of the same keys, (n,)."""
    at = (rank_word, worker, start & _LOW64, len(out))
    out.numpy()[:] = philox.derive_seeds(pair(key, tweak), *at, domain=0)


@_operator("keys", "positions")
def reseed_streams(
    keys: Tensor, positions: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Give each stream its key under a name's key, and position 0."""
    _derive(keys, pair(key, tweak), rank_word, worker, start)
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
        name = philox.name_key(scope, pair(name_lo, name_hi))
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


def _fake_digest(sums: Tensor, memory: Sequence[Tensor], plan: Tensor) -> None:
    """Do the same for ``digest``, whose plan is on the CPU."""
    _fake(sums, *memory)


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


_libraries: list[Any] = []  # their registrations live as long as they do


def register_operators(
    schemas: dict[str, str], implementations: dict[str, Callable[..., None]], more: Sequence[str]
) -> Any:
    """Define operators where the native library does not, and the fakes of these and of ``more``.

    Returns the library that they are registered in.
    """
    library: Any = torch.library.Library("fastseed", "FRAGMENT")  # type: ignore[no-untyped-call]
    _libraries.append(library)
    if native.kernels is None:
        for name, schema in schemas.items():
            library.define(name + schema)
            library.impl(name, implementations[name], "CPU")
    for name in (*schemas, *(() if native.kernels is None else more)):
        fake = _fake_digest if name == "digest" else _fake
        torch.library.register_fake(f"fastseed::{name}", fake, lib=library)
    return library


def _register() -> None:
    library = register_operators(SCHEMAS, IMPLEMENTATIONS, NATIVE_ONLY)
    for name in _PARAMETERS:
        rule = functools.partial(_batched, f"draw_{name}")
        torch.library.register_vmap(f"fastseed::draw_{name}", rule, lib=library)


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
