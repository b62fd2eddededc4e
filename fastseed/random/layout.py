"""Which values of a logical tensor a local one holds.

Value j of the stream is the element whose row-major index in the logical tensor is j. Here a
tensor, a ``Shard`` or a ``DTensor`` becomes a list of ``Piece``.
"""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

import torch

from .._backend import private_distributed
from .._utils import validation

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor, Placement

MAX_NUMEL = 2**53  # elements of a logical tensor, for which a stream has words in any dtype

Run = tuple[int, int]  # (first index, how many): indices of a logical dimension that follow it


class Shard(NamedTuple):
    """Where a tensor lies in the larger tensor of which it is a part.

    Attributes:
        global_shape: the shape of the larger tensor.
        offsets: where in it the part begins, one number a dimension.

    Examples:
        >>> import torch
        >>> whole = fastseed.random.uniform(42, (4, 2))
        >>> lower = fastseed.random.Shard(global_shape=(4, 2), offsets=(2, 0))
        >>> torch.equal(fastseed.random.uniform_(torch.empty(2, 2), 42, shard=lower), whole[2:])
        True
    """

    global_shape: Sequence[int]
    offsets: Sequence[int]


class Piece(NamedTuple):
    """A box of a local tensor, and the values of the stream that it takes."""

    box: tuple[slice, ...]  # one slice a dimension; () for all of the tensor
    sizes: tuple[int, ...]  # the box as a grid of values; () for consecutive ones
    strides: tuple[int, ...]
    offset: int


WHOLE = [Piece((), (), (), 0)]


class _Group(NamedTuple):
    at: int  # in the local tensor
    first: int
    runs: int  # runs of so many indices along a dimension
    step: int  # from one to the next
    length: int


def is_dtensor(tensor: torch.Tensor) -> TypeGuard[DTensor]:
    """Return whether it is a ``DTensor``; imports nothing for the answer."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor of this process that holds the elements of a ``DTensor``, or ``tensor``."""
    local = private_distributed.local_tensor_of(tensor)
    return local if isinstance(local, torch.Tensor) else tensor


def of_tensor(
    function: str, tensor: torch.Tensor, shard: object = None
) -> tuple[torch.Tensor, list[Piece]]:
    """(the local part of a tensor, the values it takes); to be called without gradients."""
    if is_dtensor(tensor):
        if shard is not None:
            rule = "None for a DTensor, which records its part"
            raise validation.value_error(function, "shard", rule, shard)
        return of_dtensor(function, tensor)
    return tensor, WHOLE if shard is None else of_shard(function, tensor.shape, shard)


def of_shard(function: str, shape: Sequence[int], shard: object) -> list[Piece]:
    validation.check_instance(function, "shard", shard, Shard, "a fastseed.random.Shard or None")
    sizes, offsets = (_integers(function, name, getattr(shard, name)) for name in Shard._fields)
    inside = len(sizes) == len(offsets) == len(shape) and all(
        offset + size <= whole for offset, size, whole in zip(offsets, shape, sizes, strict=True)
    )
    if not inside:
        raise ValueError(
            f"fastseed.{function}: shard must hold a tensor of shape {tuple(shape)}, "
            f"got global_shape {sizes} and offsets {offsets}"
        )
    check_numel(function, sizes)
    return pieces(sizes, [[(offset, size)] for offset, size in zip(offsets, shape, strict=True)])


def _integers(function: str, name: str, values: Iterable[object]) -> tuple[int, ...]:
    argument = f"shard.{name}"
    try:
        listed = list(values)
    except TypeError:
        rule = "a sequence of integers"
        raise validation.type_error(function, argument, rule, values) from None
    return tuple(
        validation.check_int(function, f"{argument}[{i}]", value, 0, 2**63 - 1)
        for i, value in enumerate(listed)
    )


def check_numel(function: str, shape: Sequence[int]) -> None:
    """ValueError for a logical tensor that is longer than a stream."""
    if math.prod(shape) > MAX_NUMEL:
        raise ValueError(
            f"fastseed.{function}: the logical tensor must have at most 2**53 elements, "
            f"got the shape {tuple(shape)}"
        )


def of_dtensor(function: str, tensor: DTensor) -> tuple[torch.Tensor, list[Piece]]:
    """(the local shard of a ``DTensor``, the values it takes); to be called without gradients."""
    check_numel(function, tensor.shape)
    local, indices = runs_of_dtensor(function, tensor)
    return local, pieces(tensor.shape, indices) if local.numel() else []


def runs_of_dtensor(function: str, tensor: DTensor) -> tuple[torch.Tensor, list[list[Run]]]:
    """(the local shard of a ``DTensor``, the indices that it holds along each dimension)."""
    mesh, placements = tensor.device_mesh, tuple(tensor.placements)
    dims = [private_distributed.sharded_dim(placement) for placement in placements]
    if any(dim is None and not p.is_replicate() for dim, p in zip(dims, placements, strict=True)):
        raise ValueError(
            f"fastseed.{function}: tensor must have no placements but Replicate and Shard, "
            f"got {placements}: a sum of parts has no elements to draw"
        )
    local: torch.Tensor = tensor.to_local()
    coordinate = mesh.get_coordinate()
    if coordinate is None or local.numel() == 0:  # outside the mesh, or an empty shard
        return local, [[] for _ in tensor.shape]
    spec_order = private_distributed.shard_order_of(tensor)
    indices = []
    for dim, size in enumerate(tensor.shape):
        cuts = [
            (mesh_dim, mesh.size(mesh_dim), coordinate[mesh_dim], placements[mesh_dim])
            for mesh_dim, sharded in enumerate(dims)
            if sharded == dim
        ]
        length = local.shape[dim] if local.dim() == tensor.dim() else -1
        found = _held_indices(size, length, cuts, _order(cuts, spec_order, dim))
        if found is None:
            raise ValueError(
                f"fastseed.{function}: tensor must have the local shape that its placements say, "
                f"got {tuple(local.shape)} for {placements} of {tuple(tensor.shape)} "
                f"at {tuple(coordinate)} of a mesh {tuple(mesh.shape)}"
            )
        indices.append(found)
    return local, indices


# (mesh dimension, its size, our index along it, the placement)
Cut: TypeAlias = "tuple[int, int, int, Placement]"


def _order(cuts: list[Cut], spec_order: Any, dim: int) -> list[int] | None:
    """The mesh dimensions that cut ``dim``, first cut first; None where there is no such order."""
    if not any(hasattr(placement, "split_factor") for *_, placement in cuts):
        for entry in spec_order or ():
            if entry.tensor_dim == dim:
                return list(entry.mesh_dims)
    order: list[Cut] = []
    for cut in reversed(cuts):
        # strided: it came after so many cuts of mesh dimensions to its right (FSDP2 after TP)
        before = getattr(cut[3], "split_factor", 1)
        products = itertools.accumulate((size for _, size, *_ in order), operator.mul, initial=1)
        place = next((i for i, product in enumerate(products) if product == before), None)
        if place is None:
            return None
        order.insert(place, cut)
    return [mesh_dim for mesh_dim, *_ in order]


def _held_indices(
    size: int, local: int, cuts: list[Cut], order: list[int] | None
) -> list[Run] | None:
    """The indices that the local tensor holds along a dimension; None if none fit its length."""
    # Where cuts are uneven, the order in which they were made and strided placements, read from
    # left to right, can disagree: the length of the shard tells which it was.
    if order is not None:
        runs = [(0, size)]
        by_mesh_dim = {cut[0]: cut for cut in cuts}
        for mesh_dim in order:
            _, chunks, i, _ = by_mesh_dim[mesh_dim]
            runs = _chunk(runs, chunks, i)
        if _length(runs) == local:
            return runs
    runs = [(0, size)]
    for _, chunks, i, placement in cuts:
        factor = getattr(placement, "split_factor", 1)
        parts = [_chunk(_chunk(runs, factor, j), chunks, i) for j in range(factor)]
        runs = list(itertools.chain.from_iterable(parts))
    return runs if _length(runs) == local else None


def _length(runs: list[Run]) -> int:
    return sum(count for _, count in runs)


def _chunk(runs: list[Run], chunks: int, i: int) -> list[Run]:
    """Chunk i as ``torch.chunk`` cuts."""
    size = -(-_length(runs) // chunks)
    begin, end = i * size, (i + 1) * size
    found, at = [], 0
    for first, count in runs:
        low, high = max(begin - at, 0), min(end - at, count)
        if low < high:
            found.append((first + low, high - low))
        at += count
    return found


def pieces(shape: Sequence[int], indices: Sequence[list[Run]]) -> list[Piece]:
    """The pieces of a local tensor that holds, along each dimension of ``shape``, these indices."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    found = []
    for groups in itertools.product(*(list(_grouped(runs)) for runs in indices)):
        box = tuple(slice(g.at, g.at + g.runs * g.length) for g in groups)
        offset = sum(g.first * stride for g, stride in zip(groups, strides, strict=True))
        grid = [
            axis
            for g, stride in zip(groups, strides, strict=True)
            for axis in ((g.runs, g.step * stride), (g.length, stride))
        ]
        sizes, steps = zip(*grid, strict=True) if grid else ((), ())
        found.append(Piece(box, sizes, steps, offset))
    return found


def _grouped(runs: list[Run]) -> Iterator[_Group]:
    """Runs of equal lengths and distances put together; empty ones left out."""
    at, group = 0, _Group(0, 0, 0, 0, 0)
    for first, length in runs:
        step = first - group.first - (group.runs - 1) * group.step
        if length == group.length and (group.runs == 1 or step == group.step):
            group = group._replace(runs=group.runs + 1, step=step)
        else:
            if group.length > 0:
                yield group
            group = _Group(at, first, 1, 0, length)
        at += length
    if group.length > 0:
        yield group
