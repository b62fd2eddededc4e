"""Checks of the operators' arguments for the reference backend: those of csrc/ops, in Python.

One function for each operator, with its parameters. It raises TypeError or ValueError where the
native operator refuses, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .._utils.validation import check_int, value_error
from . import tensors
from .reference import sampling
from .reference import shuffle as reference_shuffle

U64, I64, F64 = torch.uint64, torch.int64, torch.float64
REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (torch.float32, torch.float16, torch.bfloat16)
MOST_VALUES = 2**56
_MOST_DIMS = 7  # of a layout, without the last one of consecutive values
_MOST_TOKENS = 2**24
_DIGITS = 60 // sampling.DIGIT_BITS


def _check(
    op: str, name: str, value: Tensor, dtype: torch.dtype, shape: tuple[int | None, ...],
    like: Tensor,
) -> None:  # fmt: skip
    """Check a contiguous tensor on the device of ``like``; None in ``shape`` is any size."""
    tensors.check_dtype(op, name, value, dtype)
    sizes = tuple(value.shape)
    if len(sizes) != len(shape) or any(
        n not in (None, size) for n, size in zip(shape, sizes, strict=True)
    ):
        raise value_error(op, name, f"of shape {shape}", sizes)
    _check_memory(op, name, value)
    if value.device != like.device:
        raise value_error(op, name, f"on device {like.device}", value.device)


def _check_memory(op: str, name: str, value: Tensor) -> None:
    tensors.check_dense(op, name, value)
    if not value.is_contiguous():
        raise value_error(op, name, "contiguous", value.stride())


def runs_of(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, list[tuple[int, int]]]:
    """Return (length of the runs of consecutive values, (size, stride) of the other dimensions).

    Neighbouring dimensions that are consecutive in the logical tensor become one.
    """
    dims: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if dims and dims[-1][1] == size * stride:
            dims[-1] = (dims[-1][0] * size, stride)
        else:
            dims.append((size, stride))
    length = dims.pop()[0] if dims and dims[-1][1] == 1 else 1
    return length, dims


def check_layout(
    op: str, total: int, rows: int, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> None:
    """Check which values each of ``rows`` rows of ``total`` values in all holds."""
    if len(sizes) != len(strides):
        raise value_error(op, "strides", "as many as sizes", list(strides))
    check_int(op, "offset", offset, 0, MOST_VALUES)
    if total == 0:
        return
    if rows == 0 or total % rows:
        raise value_error(op, "out", f"as many elements for each of {rows} keys", total)
    last = offset
    product = 1
    for size, stride in zip(sizes, strides, strict=True):
        product *= size
        if size < 1 or stride < 0:
            raise value_error(op, "sizes and strides", "at least 1 and 0", (size, stride))
        last += (size - 1) * stride
    if sizes and product != total // rows:
        raise value_error(op, "sizes", f"those of a row of {total // rows} elements", list(sizes))
    if not sizes:
        last += total // rows
    if last > MOST_VALUES:
        raise value_error(op, "sizes and strides", "of values below 2**56", last)
    if len(runs_of(sizes, strides)[1]) > _MOST_DIMS:
        raise value_error(op, "sizes", f"of at most {_MOST_DIMS + 1} dimensions", list(sizes))


_DTYPES = {
    "bits": (torch.uint32, torch.uint64),
    "bernoulli": (torch.bool, torch.uint8, *REALS),
    "randint": (torch.uint8, torch.int32, torch.int64),
}


def draw(
    op: str, out: Tensor, keys: Tensor, positions: Tensor | None,
    sizes: Sequence[int], strides: Sequence[int], offset: int, *parameters: float,
) -> None:  # fmt: skip
    """Check the arguments of ``draw_<name>``."""
    name = op.removeprefix("draw_")
    tensors.check_dtype_of(op, "out", out, _DTYPES.get(name, REALS))
    _check_memory(op, "out", out)
    _check(op, "keys", keys, U64, (None, 2), out)
    tensors.check_writable(op, "out", out, keys=keys, positions=positions)
    if positions is not None:
        _check(op, "positions", positions, I64, (len(keys),), out)
    check_layout(op, out.numel(), len(keys), sizes, strides, offset)
    if name == "bernoulli":
        check_int(op, "threshold", parameters[0], 0, 2**32)
    if name == "randint":
        size = int(parameters[1]) % 2**64
        if size == 0:
            raise value_error(op, "range", "at least 1", 0)
        if size >= 2**32 and out.dtype != torch.int64:
            raise value_error(op, "out", "of dtype int64 for a range from 2**32 on", out.dtype)


def _scope(op: str, scope: Tensor, **written: Tensor) -> None:
    for name, tensor in written.items():
        _check(op, "scope", scope, U64, (2,), tensor)
        tensors.check_writable(op, name, tensor, scope=scope)


def _words(op: str, rank_word: int, worker: int) -> None:
    check_int(op, "rank_word", rank_word, 0, 2**32 - 1)
    check_int(op, "worker", worker, 0, 2**32 - 1)


def derive_keys(
    op: str, out: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Check the arguments of ``derive_keys``."""
    _check(op, "out", out, U64, (None, 2), out)
    _words(op, rank_word, worker)


def derive_seeds(
    op: str, out: Tensor, key: int, tweak: int, rank_word: int, worker: int, start: int
) -> None:
    """Check the arguments of ``derive_seeds``."""
    _check(op, "out", out, U64, (None,), out)
    _words(op, rank_word, worker)


def _bank(op: str, keys: Tensor, positions: Tensor) -> None:
    _check(op, "keys", keys, U64, (None, 2), keys)
    _check(op, "positions", positions, I64, (len(keys),), keys)
    tensors.check_writable(op, "keys", keys, positions=positions)


def reseed_streams(
    op: str, keys: Tensor, positions: Tensor,
    key: int, tweak: int, rank_word: int, worker: int, start: int,
) -> None:  # fmt: skip
    """Check the arguments of ``reseed_streams``."""
    _bank(op, keys, positions)
    _words(op, rank_word, worker)


def reseed_streams_at(
    op: str, keys: Tensor, positions: Tensor, scope: Tensor,
    name_lo: int, name_hi: int, rank_word: int, worker: int, start: int,
) -> None:  # fmt: skip
    """Check the arguments of ``reseed_streams_at``."""
    _bank(op, keys, positions)
    _words(op, rank_word, worker)
    _scope(op, scope, keys=keys, positions=positions)


def reseed_streams_from(
    op: str, keys: Tensor, positions: Tensor, seeds: Tensor, indices: Tensor | None,
    name_lo: int, name_hi: int,
) -> None:  # fmt: skip
    """Check the arguments of ``reseed_streams_from``."""
    _bank(op, keys, positions)
    _check(op, "seeds", seeds, U64, (len(keys),), keys)
    if indices is not None:
        _check(op, "indices", indices, I64, (len(keys),), keys)
    for name, written in (("keys", keys), ("positions", positions)):
        tensors.check_writable(op, name, written, seeds=seeds, indices=indices)


def shuffle(op: str, out: Tensor, lo: int, hi: int, n: int, start: int, stride: int) -> None:
    """Check the arguments of ``shuffle``."""
    _check(op, "out", out, I64, (None,), out)
    check_int(op, "n", n, 1, reference_shuffle.MAX_N)
    check_int(op, "start", start, 0, n)
    check_int(op, "stride", stride, 1, reference_shuffle.MAX_N)
    most = -(-(n - start) // stride)
    if len(out) > most:
        raise value_error(op, "out", f"of at most {most} elements, as many as positions", len(out))


def _rows(op: str, numbers: Tensor, first: int) -> None:
    tensors.check_dtype_of(op, "numbers", numbers, NUMBERS)
    tensors.check_dense(op, "numbers", numbers)
    if numbers.dim() != 2 or numbers.size(1) == 0:
        raise value_error(op, "numbers", "of shape (B, V), V at least 1", tuple(numbers.shape))
    check_int(op, "first", first, 0, _MOST_TOKENS - numbers.size(1))
    if numbers.size(1) > 1 and numbers.stride(1) != 1:
        raise value_error(op, "the numbers of a row", "consecutive", numbers.stride())


def sampling_race(
    op: str, scores: Tensor, tokens: Tensor, numbers: Tensor, keys: Tensor, positions: Tensor,
    temperature: Tensor, threshold: Tensor, role: int, first: int, weights: bool,
) -> None:  # fmt: skip
    """Check the arguments of ``sampling_race``."""
    _rows(op, numbers, first)
    n = len(numbers)
    _check(op, "scores", scores, F64, (n, None), numbers)
    if scores.size(1) == 0:
        raise value_error(op, "scores", "of shape (B, parts), parts at least 1", (n, 0))
    _check(op, "tokens", tokens, I64, tuple(scores.shape), numbers)
    _check(op, "keys", keys, U64, (n, 2), numbers)
    _check(op, "positions", positions, I64, (n,), numbers)
    _check(op, "temperature", temperature, F64, (n,), numbers)
    _check(op, "threshold", threshold, I64, (n,), numbers)
    check_int(op, "role", role, 0, 3)
    read = {"numbers": numbers, "keys": keys, "positions": positions}
    read.update(temperature=temperature, threshold=threshold)
    tensors.check_writable(op, "scores", scores, tokens=tokens, **read)
    tensors.check_writable(op, "tokens", tokens, **read)


def sampling_histogram(
    op: str, out: Tensor, numbers: Tensor, floor: Tensor, prefix: Tensor, greatest: Tensor | None,
    temperature: Tensor, digit: int, first: int,
) -> None:  # fmt: skip
    """Check the arguments of ``sampling_histogram``."""
    _rows(op, numbers, first)
    n = len(numbers)
    _check(op, "out", out, I64, (n, 1 << sampling.DIGIT_BITS), numbers)
    _check(op, "floor", floor, I64, (n,), numbers)
    _check(op, "prefix", prefix, I64, (n,), numbers)
    _check(op, "temperature", temperature, F64, (n,), numbers)
    read = {"numbers": numbers, "floor": floor, "prefix": prefix, "temperature": temperature}
    if greatest is not None:
        _check(op, "greatest", greatest, torch.float32, (n,), numbers)
        read["greatest"] = greatest
    tensors.check_writable(op, "out", out, **read)
    check_int(op, "digit", digit, 0, _DIGITS - 1)
    top = (1 << sampling.DIGIT_BITS * (_DIGITS - 1 - digit)) - 1
    tensors.check_values(op, "prefix", prefix, top)


CHECKS: dict[str, Callable[..., None]] = {
    check.__name__: check
    for check in (
        *(derive_keys, derive_seeds),
        *(reseed_streams, reseed_streams_at, reseed_streams_from),
        *(shuffle, sampling_race, sampling_histogram),
    )
}
"""The check of each operator with a reference; those of ``draw_<name>`` are ``draw``'s."""
