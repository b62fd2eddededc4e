"""The operators of the draws and the shuffle: ``torch.ops.fastseed.draw_uniform`` and the others.

Native code brings them with it. Without it they are defined here, with the same schemas, on the CPU
and in NumPy. All write into their first argument(s) and return nothing; arguments are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from . import native
from .reference import draws, philox, shuffle

_DRAW = "Tensor(a!) out, Tensor keys, Tensor? positions, int[] sizes, int[] strides, int offset"
_RESEED = "Tensor(a!) keys, Tensor(b!) positions"
_STREAM = "int rank_word, int worker, int start"
_NAMED = f"Tensor scope, int name_lo, int name_hi, {_STREAM}"

SCHEMAS = {
    "draw_bits": _DRAW,
    "draw_uniform": f"{_DRAW}, float span, float shift, float cap",
    "draw_normal": f"{_DRAW}, float mean, float std",
    "draw_exponential": f"{_DRAW}, float scale",
    "draw_bernoulli": f"{_DRAW}, int threshold",
    "draw_randint": f"{_DRAW}, int low, int range",
    "derive_keys_at": f"Tensor(a!) out, {_NAMED}",
    "derive_seeds_at": f"Tensor(a!) out, {_NAMED}",
    "reseed_streams": f"{_RESEED}, int key, int tweak, {_STREAM}",
    "reseed_streams_at": f"{_RESEED}, {_NAMED}",
    "reseed_streams_from": f"{_RESEED}, Tensor seeds, Tensor? indices, int name_lo, int name_hi",
    "shuffle": "Tensor(a!) out, int lo, int hi, int n, int start, int stride",
}
"""What follows the name of each operator, up to ``) -> ()``."""

_LOW64 = 2**64 - 1
_KINDS = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}

# values `start` to `start + count - 1` of each row, (n, count)
Values = Callable[[npt.NDArray[Any], npt.NDArray[Any], int, int], npt.NDArray[Any]]


def _runs(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, Iterator[int]]:
    """(length, where each begins) of the runs of consecutive values, row by row."""
    dims: list[list[int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if dims and dims[-1][1] == size * stride:  # goes on where the last dimension ended
            dims[-1] = [dims[-1][0] * size, stride]
        else:
            dims.append([size, stride])
    length = dims.pop()[0] if dims and dims[-1][1] == 1 else 1
    starts = np.zeros(1, np.int64)
    for size, stride in dims:
        starts = (starts[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return length, iter(starts.tolist())


def _fill(
    values: Values,
    out: torch.Tensor,
    keys: torch.Tensor,
    positions: torch.Tensor | None,
    sizes: Sequence[int],
    strides: Sequence[int],
    offset: int,
) -> None:
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


def _bits(*where: Any) -> None:
    words = 2 if where[0].dtype == torch.uint64 else 1
    _fill(lambda k, p, start, count: draws.bits(k, p, start, count, words), *where)


def _of_reals(function: Callable[..., npt.NDArray[Any]], parameters: int) -> Callable[..., None]:
    def fill(*arguments: Any) -> None:
        where, given = arguments[:-parameters], arguments[-parameters:]
        kind = _KINDS[where[0].dtype]
        _fill(lambda k, p, start, count: function(k, p, start, count, kind, *given), *where)

    return fill


def _bernoulli(*arguments: Any) -> None:
    *where, threshold = arguments
    _fill(lambda k, p, start, count: draws.bernoulli(k, p, start, count, threshold), *where)


def _randint(*arguments: Any) -> None:
    *where, low, range_ = arguments
    range_ &= _LOW64
    _fill(lambda k, p, start, count: draws.randint(k, p, start, count, low, range_), *where)


def _pair(low: int, high: int) -> tuple[int, int]:
    """Two integers of a schema as the unsigned ones that have their bits."""
    return low & _LOW64, high & _LOW64


def _name_key(scope: torch.Tensor, name_lo: int, name_hi: int) -> philox.NameKey:
    key, tweak = scope.tolist()
    return philox.name_key((key, tweak), _pair(name_lo, name_hi))


def _derive_keys(
    out: torch.Tensor, name: philox.NameKey, rank_word: int, worker: int, start: int
) -> None:
    out.numpy()[:] = philox.derive_keys(
        name, rank_word, worker, start & _LOW64, len(out), domain=0
    )


def _derive_keys_at(
    out: torch.Tensor, scope: torch.Tensor, name_lo: int, name_hi: int,
    rank_word: int, worker: int, start: int,
) -> None:  # fmt: skip
    _derive_keys(out, _name_key(scope, name_lo, name_hi), rank_word, worker, start)


def _derive_seeds_at(out: torch.Tensor, *at: Any) -> None:
    keys = torch.empty(len(out), 2, dtype=torch.uint64, device="cpu")
    _derive_keys_at(keys, *at)
    out.copy_(keys[:, 0])


def _reseed(
    keys: torch.Tensor, positions: torch.Tensor,
    key: int, tweak: int, rank_word: int, worker: int, start: int,
) -> None:  # fmt: skip
    _derive_keys(keys, _pair(key, tweak), rank_word, worker, start)
    positions.zero_()


def _reseed_at(keys: torch.Tensor, positions: torch.Tensor, *at: Any) -> None:
    _derive_keys_at(keys, *at)
    positions.zero_()


def _reseed_from(
    keys: torch.Tensor, positions: torch.Tensor, seeds: torch.Tensor,
    indices: torch.Tensor | None, name_lo: int, name_hi: int,
) -> None:  # fmt: skip
    at = [0] * len(keys) if indices is None else indices.tolist()
    for row, (seed, i) in enumerate(zip(seeds.tolist(), at, strict=True)):
        scope = philox.scope_key(seed, 0, 0, 0)
        name = philox.name_key(scope, _pair(name_lo, name_hi))
        key = philox.stream_key(name, philox.SHARED_RANK, 0, i & _LOW64)
        keys[row] = torch.tensor([key & _LOW64, key >> 64], dtype=torch.uint64)
    positions.zero_()


def _shuffle(out: torch.Tensor, lo: int, hi: int, n: int, start: int, stride: int) -> None:
    key = lo & _LOW64 | (hi & _LOW64) << 64
    out.numpy()[:] = shuffle.indices(key, n, start, stride, len(out))


IMPLEMENTATIONS: dict[str, Callable[..., None]] = {
    "draw_bits": _bits,
    "draw_uniform": _of_reals(draws.uniform, 3),
    "draw_normal": _of_reals(draws.normal, 2),
    "draw_exponential": _of_reals(draws.exponential, 1),
    "draw_bernoulli": _bernoulli,
    "draw_randint": _randint,
    "derive_keys_at": _derive_keys_at,
    "derive_seeds_at": _derive_seeds_at,
    "reseed_streams": _reseed,
    "reseed_streams_at": _reseed_at,
    "reseed_streams_from": _reseed_from,
    "shuffle": _shuffle,
}
"""The operators in NumPy, by name."""


def _writes_its_outputs(*given: Any) -> None:
    """What the operators do to tensors without data: nothing."""
    devices = {t.device for t in given if isinstance(t, torch.Tensor)}
    if len(devices) > 1:
        raise RuntimeError(f"fastseed: tensors must be on one device, got {devices}")


_library: Any = None  # its registrations live as long as it does


def _define() -> None:
    global _library
    _library = torch.library.Library("fastseed", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name, schema in SCHEMAS.items():
        _library.define(f"{name}({schema}) -> ()")
        _library.impl(name, IMPLEMENTATIONS[name], "CPU")


if native.kernels is None:
    _define()
for _name in SCHEMAS:
    torch.library.register_fake(f"fastseed::{_name}", _writes_its_outputs)

has_cuda: bool = torch._C._dispatch_has_kernel_for_dispatch_key("fastseed::draw_bits", "CUDA")
"""Whether the operators were built for CUDA devices; says nothing of this machine."""


def block_count(values: int, words: int) -> int:
    """How many blocks a draw of ``values`` values of ``words`` words takes."""
    return (values * words + 3) // 4


BETWEEN_REPLAYS = (
    "call it between replays, each of which reads the seed anew, or draw from a StreamBank, whose "
    "reseed_from_scope can be captured"
)
"""The way out for what seeds torch's own generators."""


def refuse_capture(function: str, device: torch.device, instead: str) -> None:
    """RuntimeError, naming what to do ``instead``, while a CUDA graph is captured."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"fastseed.{function}: must not be called while a CUDA graph is captured, which would "
            f"keep one key for ever; {instead}"
        )
