"""Digests of 128 bits that depend on every bit of a tensor, a module, an optimizer or a tree.

``docs/spec/digests.md`` has the definition. They detect accidental differences, not an attacker's.
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

from .._utils.validation import type_error, value_error
from . import shards
from .tensors import FUNCTION, MODULUS, NAME, Part

_SCALARS = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device)


class Leaf(NamedTuple):
    """The digest of one tensor, array or plain value of a tree."""

    value: int
    dtype: str
    """Of a plain value its type, as ``int``."""
    shape: tuple[int, ...]

    @property
    def hex(self) -> str:
        """The value as 32 hexadecimal digits."""
        return f"{self.value:032x}"

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} {self.hex}"


@dataclass(frozen=True)
class Digest:
    """The digest of a whole tree, 128 bits, and a table of its leaves.

    A leaf has a name as ``layers.0.weight``; the name of a single tensor is empty.
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
    """A part in which two trees, recordings, checkpoints or environments differ."""

    name: str
    a: object
    """The value on the first side; None if it is absent there."""
    b: object
    text: str

    def __str__(self) -> str:
        return f"{self.name or '(the tensor)'}: {self.text}"


def sides(name: str, a: object, b: object) -> Difference:
    """Return a difference whose text has both values."""
    shown = ("absent" if side is None else str(side) for side in (a, b))
    return Difference(name, a, b, " | ".join(shown))


def digest(obj: object) -> Digest:
    """Return the digest of a tensor, module, optimizer, state dict, or tree of containers.

    The digest of a ``DTensor`` is that of the whole tensor: each rank digests its shard, and sums
    are exchanged. So it is a collective of the tensor's mesh, whose ranks all hold the same names.

    Args:
        obj: a tree of dicts, lists and tuples. Its leaves are dense tensors of any shape, dtype
            and device; NumPy arrays; plain values, torch's dtypes and devices. A module has its
            parameters and buffers; an object with ``state_dict()`` has its entries. The order of
            keys does not matter.

    Returns:
        ``value`` and ``hex``, the same on every device, for every memory layout and number of
        threads, and ``table``, the digest of each leaf by name.

    Raises:
        TypeError: a leaf is of another type; a tensor is sparse, or without data (freed, fake).
        ValueError: two leaves have one name, or the tree is too deep for Python.
        RuntimeError: a rank is not in the mesh of its ``DTensor``, or ranks hold different names.

    Examples:
        >>> import torch, fastseed
        >>> fastseed.debug.digest(torch.arange(10)).hex
        '74e14d1c0ffd6b21e5444a638076ce28'
        >>> list(fastseed.debug.digest(torch.nn.Linear(2, 3)).table)
        ['weight', 'bias']
    """
    try:
        table = table_of(leaves_of("", obj))
    except RecursionError as error:
        rule = "a tree that Python's recursion limit permits to walk"
        raise value_error(FUNCTION, "obj", rule, obj) from error
    return Digest(whole(table), table)


def table_of(leaves: Iterable[tuple[str, object]]) -> dict[str, Leaf]:
    """Return the digest of each leaf: a collective if there are DTensors among them."""
    named: dict[str, object] = {}
    tensors: dict[str, torch.Tensor] = {}
    for name, leaf in leaves:
        if name in named:
            raise ValueError(
                f"fastseed.{FUNCTION}: obj must have one leaf of each name, got two at {name!r}"
            )
        named[name] = leaf
        if isinstance(leaf, torch.Tensor):
            tensors[name] = leaf
    parts = shards.parts_of(tensors)
    shards.join(parts)
    return {
        name: leaf_of(parts[name]) if name in parts else _scalar(leaf)
        for name, leaf in named.items()
    }


def compare(a: object, b: object) -> list[Difference]:
    """Return the leaves in which two trees differ.

    Args:
        a: anything that ``digest`` takes or returns.
        b: the same.

    Returns:
        The differences in the order of ``a``, then those that only ``b`` has.

    Raises:
        TypeError, ValueError, RuntimeError: as ``digest``.

    Examples:
        >>> import torch, fastseed
        >>> a = {"w": torch.zeros(4), "step": 1}
        >>> b = {"w": torch.zeros(4), "step": 2}
        >>> [difference.name for difference in fastseed.debug.compare(a, b)]
        ['step']
    """
    left, right = (x if isinstance(x, Digest) else digest(x) for x in (a, b))
    names = {**left.table, **right.table}
    pairs = ((name, left.table.get(name), right.table.get(name)) for name in names)
    return [sides(name, one, other) for name, one, other in pairs if one != other]


def leaves_of(
    name: str, obj: object, above: frozenset[int] = frozenset()
) -> Iterator[tuple[str, object]]:
    """Yield every leaf of a tree of this name with its own name."""
    if isinstance(obj, torch.Tensor):
        yield name, obj
    elif isinstance(obj, torch.nn.Module):
        yield from _named(name, obj.named_parameters(remove_duplicate=False), above)
        yield from _named(name, obj.named_buffers(remove_duplicate=False), above)
    elif isinstance(obj, (np.ndarray, np.generic)):
        yield name, _array(name, np.asarray(obj))
    elif isinstance(obj, _SCALARS):
        yield name, obj
    elif isinstance(obj, (Mapping, list, tuple)):
        if id(obj) in above:
            raise TypeError(f"fastseed.{FUNCTION}: obj must be a tree, but {name!r} holds itself")
        if not obj:
            yield name, obj
        items = obj.items() if isinstance(obj, Mapping) else enumerate(obj)
        yield from _named(name, items, above | {id(obj)})
    elif not isinstance(obj, type) and callable(state_dict := getattr(obj, "state_dict", None)):
        yield from leaves_of(name, state_dict(), above)
    else:
        rule = "a tensor, an array, a plain value, a dict, a list or a tuple"
        raise type_error(FUNCTION, f"the leaf at {name!r}", rule, obj)


def _named(
    name: str, items: Iterable[tuple[object, object]], above: frozenset[int]
) -> Iterator[tuple[str, object]]:
    for key, value in items:
        # An empty key at the top is ".": a tree of one leaf differs from the leaf.
        yield from leaves_of(f"{name}.{key}" if name else str(key) or ".", value, above)


def _array(name: str, array: np.ndarray[Any, Any]) -> torch.Tensor:
    if array.dtype.kind not in "biufc" or array.dtype.char in "gG":  # long: has padding
        rule = "an array of numbers"
        raise type_error(FUNCTION, f"the leaf at {name!r}", rule, str(array.dtype))
    # A copy if torch cannot use the memory: byte order, strides, read-only.
    usable = all(s >= 0 and s % array.itemsize == 0 for s in array.strides)
    if not (usable and array.dtype.isnative and array.flags.writeable):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    # NumPy has two unsigned types of 64 bits, of which torch takes one.
    return torch.from_numpy(array.view(np.uint64) if array.dtype == np.uint64 else array)


def leaf_of(part: Part) -> Leaf:
    """Return the digest of a tensor whose parts are added up."""
    header = part.header
    return Leaf((header.start + part.total) % MODULUS, header.dtype, header.shape)


def _scalar(leaf: object) -> Leaf:
    kind = type(leaf).__name__
    if isinstance(leaf, (Mapping, list, tuple)):  # an empty one
        kinds = {"dict": Mapping, "list": list, "tuple": tuple}
        kind = next(name for name, its in kinds.items() if isinstance(leaf, its))
        data = b""
    elif isinstance(leaf, float):
        data = struct.pack("<d", leaf)
    elif isinstance(leaf, complex):
        data = struct.pack("<dd", leaf.real, leaf.imag)
    elif isinstance(leaf, bytes):
        data = leaf
    else:  # str(int) refuses more than 4300 digits
        text = str(decimal.Decimal(leaf)) if type(leaf) is int else str(leaf)
        data = text.encode("utf-8", "surrogatepass")
    sha = hashlib.sha256(NAME + b"\0value\0" + kind.encode() + b"\0" + data)
    return Leaf(int.from_bytes(sha.digest()[:16], "little"), kind, ())


def whole(table: Mapping[str, Leaf]) -> int:
    """Return one value for all leaves, which does not depend on the order of their names."""
    sha = hashlib.sha256(NAME + b"\0tree\0")
    for name in sorted(table):
        text = name.encode("utf-8", "surrogatepass")
        sha.update(struct.pack("<Q", len(text)) + text + table[name].value.to_bytes(16, "little"))
    return int.from_bytes(sha.digest()[:16], "little")
