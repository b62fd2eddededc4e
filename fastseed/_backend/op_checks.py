"""Checks of the operators' arguments for the reference backend: those of csrc/ops, in Python.

They raise TypeError or ValueError where the native operator refuses, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from .._utils.validation import check_int, value_error
from . import tensors
from .reference import sampling
from .reference import shuffle as reference_shuffle

REALS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
NUMBERS = (torch.float32, torch.float16, torch.bfloat16)
MOST_VALUES = 2**56
_MOST_DIMS = 7  # of a layout, without the last one of consecutive values
_MOST_TOKENS = 2**24
_DIGITS = 60 // sampling.DIGIT_BITS

Rule = tuple[torch.dtype, tuple[int | str, ...]]
"""The dtype and the shape of a tensor. A size with a name is the same throughout a call."""

_U64, _I64, _F64 = (
    ((dtype, ("n",))) for dtype in (torch.uint64, torch.int64, torch.float64)
)  # one number for each of n
_KEYS: Rule = (torch.uint64, ("n", 2))
_BANK: dict[str, Rule] = {"keys": _KEYS, "positions": _I64}
_SCOPE: dict[str, Rule] = {"scope": (torch.uint64, (2,))}
_TENSORS: dict[str, dict[str, Rule]] = {
    "derive_keys": {"out": _KEYS},
    "derive_seeds": {"out": _U64},
    "reseed_streams": _BANK,
    "reseed_streams_at": _BANK | _SCOPE,
    "reseed_streams_from": _BANK | {"seeds": _U64, "indices": _I64},
    "shuffle": {"out": _I64},
    "shuffle_positions": {"out": _I64, "samples": _I64},
    "sampling_race": {
        "scores": (torch.float64, ("n", "parts")),
        "tokens": (torch.int64, ("n", "parts")),
        **_BANK,
        "temperature": _F64,
        "threshold": _I64,
    },
    "sampling_histogram": {
        "out": (torch.int64, ("n", 1 << sampling.DIGIT_BITS)),
        **{"floor": _I64, "prefix": _I64, "temperature": _F64},
        "greatest": (torch.float32, ("n",)),
    },
    "layer_key": {"out": (torch.uint64, (3,)), **_SCOPE},
}
"""The tensors of each operator but ``numbers``; those of ``draw_<name>`` are a bank's."""
_GREATEST = {"rank_word": 2**32 - 1, "worker": 2**32 - 1, "role": 3, "digit": _DIGITS - 1}
"""The greatest value of integers that are at least 0."""


def check(op: str, arguments: Mapping[str, object], written: Sequence[str]) -> None:
    """Check the arguments of an operator that writes those named ``written``."""
    given = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    for name, tensor in given.items():
        tensors.check_dense(op, name, tensor)
    sizes: dict[str, int] = {}
    like = given[written[0]]
    if "numbers" in given:
        like = given["numbers"]
        _check_numbers(op, like, arguments["first"])
        sizes["n"] = len(like)
    for name, rule in _TENSORS.get(op, _BANK).items():
        if name in given:
            _check_tensor(op, name, given[name], rule, sizes, like)
    for name in written:
        others = {other: tensor for other, tensor in given.items() if other != name}
        tensors.check_writable(op, name, given[name], **others)
    for name, greatest in _GREATEST.items():
        if name in arguments:
            check_int(op, name, arguments[name], 0, greatest)
    if op.startswith("draw_"):
        _check_draw(op, given["out"], given["keys"], arguments)
    elif op == "shuffle":
        _check_shuffle(op, len(like), *(arguments[name] for name in ("n", "start", "stride")))
    elif op == "shuffle_positions":
        check_int(op, "n", arguments["n"], 1, reference_shuffle.MAX_N)
    elif op == "sampling_race" and sizes["parts"] == 0:
        raise value_error(op, "scores", "of shape (B, parts), parts at least 1", (sizes["n"], 0))
    elif op == "sampling_histogram":
        digits_above = _DIGITS - 1 - cast(int, arguments["digit"])
        top = (1 << sampling.DIGIT_BITS * digits_above) - 1
        tensors.check_values(op, "prefix", given["prefix"], top)


def _check_tensor(
    op: str, name: str, value: Tensor, rule: Rule, sizes: dict[str, int], like: Tensor
) -> None:
    """Check a contiguous tensor on the device of ``like``; ``sizes`` keeps its named sizes."""
    dtype, shape = rule
    tensors.check_dtype(op, name, value, dtype)
    if value.dim() == len(shape):
        for size, found in zip(shape, value.shape, strict=True):
            if isinstance(size, str):
                sizes.setdefault(size, found)
    wanted = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in shape)
    if tuple(value.shape) != wanted:
        raise value_error(op, name, f"of shape {wanted}", tuple(value.shape))
    _check_contiguous(op, name, value)
    if value.device != like.device:
        raise value_error(op, name, f"on device {like.device}", value.device)


def _check_contiguous(op: str, name: str, value: Tensor) -> None:
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
    "draw_bits": (torch.uint32, torch.uint64),
    "draw_bernoulli": (torch.bool, torch.uint8, *REALS),
    "draw_randint": (torch.uint8, torch.int32, torch.int64),
}


def _check_draw(op: str, out: Tensor, keys: Tensor, arguments: Mapping[str, object]) -> None:
    tensors.check_dtype_of(op, "out", out, _DTYPES.get(op, REALS))
    _check_contiguous(op, "out", out)
    if out.device != keys.device:
        raise value_error(op, "out", f"on device {keys.device}", out.device)
    sizes, strides = (cast(Sequence[int], arguments[name]) for name in ("sizes", "strides"))
    check_layout(op, out.numel(), len(keys), sizes, strides, cast(int, arguments["offset"]))
    if op == "draw_bernoulli":
        check_int(op, "threshold", arguments["threshold"], 0, 2**32)
    if op == "draw_randint":
        size = cast(int, arguments["range"]) % 2**64
        if size == 0:
            raise value_error(op, "range", "at least 1", 0)
        if size >= 2**32 and out.dtype != torch.int64:
            raise value_error(op, "out", "of dtype int64 for a range from 2**32 on", out.dtype)


def _check_shuffle(op: str, count: int, n: object, start: object, stride: object) -> None:
    n = check_int(op, "n", n, 1, reference_shuffle.MAX_N)
    start = check_int(op, "start", start, 0, n)
    stride = check_int(op, "stride", stride, 1, reference_shuffle.MAX_N)
    most = -(-(n - start) // stride)
    if count > most:
        raise value_error(op, "out", f"of at most {most} elements, as many as positions", count)


def _check_numbers(op: str, numbers: Tensor, first: object) -> None:
    tensors.check_dtype_of(op, "numbers", numbers, NUMBERS)
    if numbers.dim() != 2 or numbers.size(1) == 0:
        raise value_error(op, "numbers", "of shape (B, V), V at least 1", tuple(numbers.shape))
    check_int(op, "first", first, 0, _MOST_TOKENS - numbers.size(1))
    if numbers.size(1) > 1 and numbers.stride(1) != 1:
        raise value_error(op, "the numbers of a row", "consecutive", numbers.stride())
