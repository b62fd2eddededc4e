"""Sums over the groups of tensors, whole or in parts (docs/spec/digests.md).

A group is 16 bytes of a row of the last dimension; groups are numbered over the whole tensor.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from .._backend import native, private_distributed
from .._backend.ops import digest as digest_op
from .._backend.reference import digest as reference
from .._backend.tensors import has_memory
from .._utils.validation import type_error
from ..random import layout

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

NAME = b"fastseed digest 1"
GROUP = reference.GROUP
MODULUS = reference.MODULUS

FUNCTION = "debug.digest"
PLAIN = (torch.Tensor, torch.nn.Parameter)
_WHOLE = 2**64 - 1  # -1, the bytes of a row in a plan: all of a tensor, which the operator reads
_META = torch.device("meta")
_PLAN = struct.Struct("=7Q")  # a row of a plan for the operator


class Rows(NamedTuple):
    """Rows of bytes that begin at a group and end at a group or with a tensor's row."""

    matrix: torch.Tensor  # 2-D uint8; its rows are contiguous
    first: int  # the number of the first group of the first row
    step: int  # from the number of one row's first group to that of the next row


class Header(NamedTuple):
    """The values that a tensor's digest takes from its dtype and shape."""

    dtype: str
    shape: tuple[int, ...]
    key: int  # of the groups
    start: int  # to which the sum of the groups is added
    plan: bytes  # the row of a plan for a whole tensor


@dataclass(slots=True)
class Part:
    """The sum of the groups that a process holds of a tensor."""

    header: Header
    total: int = 0
    mesh: DeviceMesh | None = None  # over whose ``dims`` the sums of a DTensor are added up
    dims: tuple[int, ...] = ()
    cut: Any = None  # a DTensor whose shards cut groups, to be gathered


@functools.lru_cache(maxsize=4096)
def header_of(dtype: torch.dtype, shape: tuple[int, ...]) -> Header:
    name, sizes = str(dtype).removeprefix("torch."), tuple(shape)
    text = f"\0tensor\0{name}\0{','.join(map(str, sizes))}"
    sha = hashlib.sha256(NAME + text.encode()).digest()
    key = int.from_bytes(sha[16:24], "little")
    start = int.from_bytes(sha[:16], "little")
    return Header(name, sizes, key, start, _PLAN.pack(key, 0, _WHOLE, 0, 0, 0, 0))


def parts_here(tensors: Mapping[str, torch.Tensor]) -> dict[str, Part]:
    """Return the part of each tensor that this process holds, with one call for each device."""
    whole: dict[torch.device, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if _is_whole(tensor):
            whole.setdefault(tensor.device, {})[name] = tensor
    parts: dict[str, Part] = {}
    for chosen in whole.values():
        headers = [header_of(tensor.dtype, tensor.shape) for tensor in chosen.values()]
        try:
            totals = _call([*chosen.values()], [header.plan for header in headers])
        except RuntimeError:  # one is quantized or freed: _rows names it
            continue
        parts.update(zip(chosen, map(Part, headers, totals), strict=True))
    rows: list[tuple[Part, Rows]] = []
    for name in [name for name in tensors if name not in parts]:
        held = _rows(name, tensors[name])
        part = parts[name] = Part(header_of(tensors[name].dtype, tensors[name].shape))
        rows += [(part, row) for row in held]
    totals = sum_rows([part.header.key for part, _ in rows], [row for _, row in rows])
    for (part, _), total in zip(rows, totals, strict=True):
        part.total = (part.total + total) % MODULUS
    return parts


def _rows(name: str, tensor: torch.Tensor) -> list[Rows]:
    local, runs = tensor, None
    if layout.is_dtensor(tensor):
        with torch.no_grad():
            local, runs = layout.runs_of_dtensor("digest", tensor)
    local = plain(name, local)
    if local.numel() == 0:
        return []
    if runs is not None:
        return rows_of_shard(local, runs, tensor.shape)
    table = _bytes(local)
    return [Rows(table, 0, -(-table.shape[1] // GROUP))]


def _is_whole(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one piece of memory that the operator can read by itself."""
    readable = tensor.is_cpu or (tensor.is_cuda and native.has_cuda)
    if type(tensor) not in PLAIN or not readable or native.kernels is None:
        return False
    try:
        return not tensor.is_nested and tensor.is_contiguous() and tensor.data_ptr() != 0
    except RuntimeError:  # sparse, or of torch.func
        return False


def plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory has the bits that arithmetic uses; TypeError without memory."""
    if torch.nn.parameter.is_lazy(tensor):
        rule = "initialized: run the lazy module once"
        raise type_error(FUNCTION, f"the tensor at {name!r}", rule, type(tensor))
    tensor = private_distributed.finished(tensor)
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        rule = "dense and strided (see Tensor.to_dense)"
        raise type_error(FUNCTION, f"the tensor at {name!r}", rule, tensor.layout)
    if not is_in_memory(tensor):
        rule = "one with memory of its own (not freed, fake, meta or a wrapper)"
        raise type_error(FUNCTION, f"the tensor at {name!r}", rule, type(tensor))
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor


def has_digest(tensor: torch.Tensor) -> bool:
    """Return whether the values of a tensor can be read and digested."""
    try:
        return plain("", tensor) is not None
    except TypeError:
        return False


def is_in_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has memory that can be read: no wrapper, fake or meta tensor."""
    if not (tensor.is_cpu or tensor.is_cuda):
        return not tensor.is_meta
    if tensor.numel() == 0:
        return True
    try:
        is_real = tensor.untyped_storage().device != _META and tensor.data_ptr() != 0
        return is_real and has_memory(tensor)
    except (RuntimeError, NotImplementedError):  # no storage: tensors of vmap
        return False


def rows_of_shard(
    local: torch.Tensor, boxes: list[list[layout.Run]], shape: Sequence[int]
) -> list[Rows]:
    """Return the rows of a local tensor that holds these indices; its edges cut no group."""
    size = local.element_size()
    groups = -(-size * (shape[-1] if shape else 1) // GROUP)
    table = _bytes(local)
    rows: list[Rows] = []
    at = 0
    for first, count in _row_runs(boxes[:-1], shape[:-1]):
        left = 0
        for column, width in boxes[-1] if boxes else [(0, 1)]:
            part = table[at : at + count, left : left + width * size]
            rows.append(Rows(part, first * groups + column * size // GROUP, groups))
            left += width * size
        at += count
    return rows


def _row_runs(boxes: list[list[layout.Run]], shape: Sequence[int]) -> list[layout.Run]:
    """Return runs of consecutive rows; a row is an index of all dimensions but the last."""
    runs, whole = [(0, 1)], 1
    for dim in reversed(range(len(shape))):
        if runs == [(0, whole)]:
            runs = [(first * whole, count * whole) for first, count in boxes[dim]]
        else:
            runs = [
                (index * whole + first, count)
                for start, many in boxes[dim]
                for index in range(start, start + many)
                for first, count in runs
            ]
        whole *= shape[dim]
    return runs


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a matrix of bytes with contiguous rows; a copy only if it is needed."""
    rows = tensor.detach().reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
    if rows.shape[1] == 1 and rows.stride(1) != 1:  # a stride that is never used
        rows = rows.as_strided(rows.shape, (rows.stride(0), 1))
    return (rows if rows.stride(1) == 1 else rows.contiguous()).view(torch.uint8)


def sum_rows(keys: list[int], rows: list[Rows]) -> list[int]:
    """Return the sums modulo 2**128 of the groups of many rows, with one call for each device."""
    if native.kernels is None:
        return [
            reference.digest_rows(key, r.matrix.cpu().numpy(), r.first, r.step)
            for key, r in zip(keys, rows, strict=True)
        ]
    readable = ("cpu", "cuda") if native.has_cuda else ("cpu",)
    by_device: dict[torch.device, dict[int, Rows]] = {}
    for i, r in enumerate(rows):
        if r.matrix.device.type not in readable:
            r = r._replace(matrix=r.matrix.cpu())
        by_device.setdefault(r.matrix.device, {})[i] = r
    sums = [0] * len(rows)
    for chosen in by_device.values():
        matrices = [r.matrix for r in chosen.values()]
        plan = [
            _PLAN.pack(keys[i], m.data_ptr(), m.shape[1], m.shape[0], m.stride(0), r.first, r.step)
            for (i, r), m in zip(chosen.items(), matrices, strict=True)
        ]
        for i, total in zip(chosen, _call(matrices, plan), strict=True):
            sums[i] = total
    return sums


def _call(memory: list[torch.Tensor], plan: list[bytes]) -> list[int]:
    """Return the sum of each row of a plan for the operator; the tensors are of one device."""
    sums = torch.zeros((len(memory), 2), dtype=torch.uint64, device=memory[0].device)
    digest_op.digest(sums, memory, _table(tuple(plan)))
    return [low | high << 64 for low, high in sums.tolist()]


@functools.lru_cache(maxsize=64)
def _table(plan: tuple[bytes, ...]) -> torch.Tensor:
    table = torch.from_numpy(np.ndarray((len(plan), 7), np.int64, bytearray().join(plan)))
    if type(table) is not torch.Tensor:  # it would be kept for other calls
        raise RuntimeError(
            f"fastseed.{FUNCTION}: must not be called in a mode where new tensors have no values, "
            f"got a {type(table).__name__}"
        )
    return table
