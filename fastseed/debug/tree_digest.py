"""128 bits that stand for every bit of a tensor, a module, an optimizer or a tree of them.

A tensor's digest is a sum over its groups of 16 bytes, each run through a keyed block function with
its place in the tensor (docs/digest.md). So it depends on every bit, its position, the dtype and
the shape; not on device, memory layout or threads; and the digests of a tensor's parts add up to
the whole's. It is made to find differences, not to withstand someone who constructs equal ones.
"""

from __future__ import annotations

import decimal
import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from .._backend.reference import digest as _reference_digest
from .._utils.validation import describe
from . import rank_digest, tensor_digest

MODULUS = _reference_digest.MODULUS
GROUP = _reference_digest.GROUP
_NAME = tensor_digest.NAME

_PLAIN = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device)
_BY_ROW, _BY_COLUMN = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
_SPARSE = {  # what a sparse tensor of each layout is made of
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: (*_BY_ROW, "values"),
    torch.sparse_bsr: (*_BY_ROW, "values"),
    torch.sparse_csc: (*_BY_COLUMN, "values"),
    torch.sparse_bsc: (*_BY_COLUMN, "values"),
}


class _Empty(NamedTuple):
    """Stands for a dict, list or tuple without leaves."""

    kind: str


class Leaf(NamedTuple):
    """What one tensor, array or plain value of a tree comes to."""

    value: int
    """128 bits."""
    dtype: str
    """``float32`` and so on; ``int``, ``str``, … for what is no tensor."""
    shape: tuple[int, ...]

    @property
    def hex(self) -> str:
        """The value as 32 hexadecimal digits."""
        return f"{self.value:032x}"


@dataclass(frozen=True)
class Digest:
    """What a whole tree comes to, and each of its leaves by name.

    Attributes:
        value: 128 bits.
        table: the leaves' digests by name, such as ``layers.0.weight``; a single tensor's name is
            empty.
    """

    value: int
    table: Mapping[str, Leaf]

    @property
    def hex(self) -> str:
        """The value as 32 hexadecimal digits."""
        return f"{self.value:032x}"

    def __str__(self) -> str:
        return self.hex


class Difference(NamedTuple):
    """A leaf in which two trees differ; one of the sides is None where it has no such leaf."""

    name: str
    a: Leaf | None
    b: Leaf | None

    def __str__(self) -> str:
        sides = (
            "absent" if s is None else f"{s.dtype}{list(s.shape)} {s.hex[:12]}"
            for s in (self.a, self.b)
        )
        return f"{self.name or '(the tensor)'}: {' | '.join(sides)}"


def digest(obj: Any) -> Digest:
    """The digest of a tensor, module, optimizer, state dict, or tree of dicts, lists and tuples.

    Args:
        obj: its leaves are tensors of any strided layout and device, NumPy arrays, and plain values
            (None, bool, int, float, complex, str, bytes, torch's dtypes and devices). A sparse
            tensor counts as a dict of its layout, size, indices and values, as they are stored. Of
            a module: parameters and buffers; of an optimizer or anything else with
            ``state_dict()``: what that gives. The order of a dict's keys is no matter.

    Returns:
        A :class:`Digest`: the same on every device, for every layout in memory and thread count.

    Raises:
        TypeError: a leaf is none of these, or a tensor has no data (``meta``).
        ValueError: two leaves have one name, as with ``{"a.b": 1, "a": {"b": 2}}``.
        RuntimeError: a rank holds a ``DTensor`` of a mesh that it is not in, or the ranks of a mesh
            do not hold the same ones.

    A ``DTensor``'s digest is that of the whole tensor: each rank digests its shard and sums are
    exchanged, never data beyond single groups (but what is ``Partial`` is summed up first). So it
    is a collective of the tensor's mesh, in which all its ranks must hold the same names.
    """
    table = table_of(_leaves("", obj, set()))
    return Digest(_whole(table), table)


def leaves_of(name: str, obj: Any) -> Iterator[tuple[str, Any]]:
    """Every leaf of a tree that has this name, with its own."""
    if type(obj) is torch.Tensor and obj.layout == torch.strided:
        return iter([(name, obj)])
    return _leaves(name, obj, set())


def table_of(leaves: Iterable[tuple[str, Any]]) -> dict[str, Leaf]:
    """The digest of each leaf: a collective where there are DTensors among them."""
    named: dict[str, Any] = {}
    for name, leaf in leaves:
        if name in named:
            raise ValueError(
                f"fastseed.debug.digest: obj must have one leaf of each name, got two at {name!r}"
            )
        named[name] = leaf
    tensors = {name: leaf for name, leaf in named.items() if isinstance(leaf, torch.Tensor)}
    sums = rank_digest.sums_of(tensors)
    return {
        name: _of_tensor(leaf, sums[name]) if name in sums else _plain(name, leaf)
        for name, leaf in named.items()
    }


def assert_ranks_agree(module: Any, group: dist.ProcessGroup | None = None) -> None:
    """Return if a module is the same, bit for bit, on all ranks; else raise, on every rank.

    For what is replicated, as DDP does: parameters and buffers of one process are compared with
    those of the others. Of a ``DTensor`` the whole counts, so its replicas are compared. Digests
    travel, not data: 128 bits of each rank, and, where those differ, those of each tensor.

    Args:
        module: anything that :func:`digest` takes. Its tensors may differ in names and number.
        group: the ranks to compare, all of which have to make the call; all ranks unless given.
            Without torch.distributed, or with one rank, it returns at once.

    Raises:
        TypeError: ``group`` is no process group.
        ValueError: this process is not in ``group``.
        RuntimeError: ranks differ, or one of them could not digest its module: the message names
            ranks and tensors. It is the same on all ranks.
    """
    size = rank_digest.group_size(group)
    if size <= 1:
        return
    try:
        table, problem = {name: leaf.value for name, leaf in digest(module).table.items()}, ""
    except (TypeError, ValueError, RuntimeError) as error:
        table, problem = {}, str(error)
    rank_digest.agree(table, problem, group)


def compare(a: Any, b: Any, *, limit: int | None = None) -> list[Difference]:
    """The leaves in which two trees, or two :class:`Digest`, differ, in the order of ``a``.

    Args:
        a: anything that :func:`digest` takes, or a :class:`Digest`; ``b`` likewise.
        b: see above.
        limit: stop after so many; None: all of them.
    """
    left, right = (x if isinstance(x, Digest) else digest(x) for x in (a, b))
    found = []
    for name in (*left.table, *(n for n in right.table if n not in left.table)):
        difference = Difference(name, left.table.get(name), right.table.get(name))
        if difference.a != difference.b:
            found.append(difference)
            if limit is not None and len(found) >= limit:
                break
    return found


# ---------------------------------------------------------------- trees


def _leaves(name: str, obj: Any, above: set[int]) -> Iterator[tuple[str, Any]]:
    """Every leaf of a tree with its name."""
    if isinstance(obj, torch.nn.Module):
        yield from _named(name, obj.named_parameters(remove_duplicate=False), above)
        yield from _named(name, obj.named_buffers(remove_duplicate=False), above)
    elif isinstance(obj, torch.Tensor) and obj.layout in _SPARSE:
        yield from _named(name, _sparse(obj), above)
    elif isinstance(obj, (torch.Tensor, np.ndarray, np.generic, *_PLAIN)):
        yield name, torch.from_numpy(obj) if _is_plain_array(obj) else obj
    elif isinstance(obj, (Mapping, list, tuple)):
        if id(obj) in above:
            raise TypeError(f"fastseed.debug.digest: obj must be a tree, but {name!r} holds itself")
        items = obj.items() if isinstance(obj, Mapping) else enumerate(obj)
        if not obj:
            yield name, _Empty(_kind(obj))
        yield from _named(name, items, above | {id(obj)})
    elif callable(getattr(obj, "state_dict", None)):
        yield from _leaves(name, obj.state_dict(), above)
    else:
        raise TypeError(
            "fastseed.debug.digest: obj must be made of tensors, arrays, plain values, dicts, "
            f"lists and tuples, got {describe(obj)} of type {type(obj).__name__} at {name!r}"
        )


def _named(
    name: str, items: Iterable[tuple[Any, Any]], above: set[int]
) -> Iterator[tuple[str, Any]]:
    for key, value in items:
        # An empty key at the top is ".": a tree of one leaf is not the leaf.
        yield from _leaves(f"{name}.{key}" if name else str(key) or ".", value, above)


def _sparse(tensor: torch.Tensor) -> list[tuple[str, Any]]:
    """What a sparse tensor is made of; duplicate indices are not added up."""
    parts = _SPARSE[tensor.layout]
    found = [(part.strip("_"), getattr(tensor.detach(), part)()) for part in parts]
    return [("layout", str(tensor.layout)), ("size", tuple(tensor.shape)), *found]


def _kind(obj: Any) -> str:
    return "dict" if isinstance(obj, Mapping) else "list" if isinstance(obj, list) else "tuple"


def _is_plain_array(obj: Any) -> bool:
    """Whether torch takes a NumPy array as it is."""
    return (
        isinstance(obj, np.ndarray)
        and obj.dtype.kind in "biufc"
        and obj.dtype.isnative
        and obj.itemsize <= 16
        and obj.dtype not in (np.longdouble, np.clongdouble)
        and all(s >= 0 for s in obj.strides)
        and obj.flags.writeable
    )


def _of_tensor(tensor: torch.Tensor, total: int) -> Leaf:
    dtype, shape = tensor_digest.dtype_name(tensor), tuple(tensor.shape)
    _, header = tensor_digest.header_of(dtype, shape)
    return Leaf((header + total) % MODULUS, dtype, shape)


def _plain(name: str, leaf: Any) -> Leaf:
    """A leaf that is no tensor."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        array = np.asarray(leaf)
        if array.dtype.kind not in "biufcSU" or array.dtype.char in "gG":  # long: has padding
            raise TypeError(
                "fastseed.debug.digest: obj must hold arrays of numbers or text, "
                f"got dtype {array.dtype} at {name!r}"
            )
        return _of_array(array)
    if isinstance(leaf, _Empty):
        return _value(leaf.kind, b"")
    if isinstance(leaf, float):
        data = struct.pack("<d", leaf)
    elif isinstance(leaf, complex):
        data = struct.pack("<dd", leaf.real, leaf.imag)
    elif isinstance(leaf, bytes):
        data = leaf
    else:
        data = _text(leaf).encode("utf-8", "surrogatepass")
    return _value(type(leaf).__name__, data)


def _text(leaf: Any) -> str:
    try:
        return str(leaf)
    except ValueError:  # an int of more digits than Python turns to text; Decimal has no limit
        if isinstance(leaf, int):
            return str(decimal.Decimal(leaf))
        raise


def _value(kind: str, data: bytes) -> Leaf:
    sha = hashlib.sha256(_NAME + b"\0value\0" + kind.encode() + b"\0" + data)
    return Leaf(int.from_bytes(sha.digest()[:16], "little"), kind, ())


def _of_array(array: np.ndarray[Any, Any]) -> Leaf:
    """An array that torch would not take as it is."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    bytes_ = np.frombuffer(np.ascontiguousarray(little).tobytes(), np.uint8)
    dtype = array.dtype.newbyteorder("=").name
    row = array.shape[-1] * array.itemsize if array.ndim else array.itemsize
    key, header = tensor_digest.header_of(dtype, array.shape)
    total = 0
    if bytes_.size:
        rows = bytes_.reshape(-1, row)
        total = _reference_digest.digest_rows(key, rows, 0, -(-row // GROUP))
    return Leaf((header + total) % MODULUS, dtype, array.shape)


def _whole(table: Mapping[str, Leaf]) -> int:
    """One value for all leaves, whatever the order of their names."""
    sha = hashlib.sha256(_NAME + b"\0tree\0")
    for name in sorted(table):
        text = name.encode("utf-8", "surrogatepass")
        sha.update(struct.pack("<Q", len(text)) + text + table[name].value.to_bytes(16, "little"))
    return int.from_bytes(sha.digest()[:16], "little")
