"""The checkpoint file, version 1: a state as bytes. It contains no pickle and no code.

    offset  bytes
         0      8  "fastseed"
         8      8  length of the header, little-endian
        16      …  header: JSON in UTF-8
         …      …  the exact states, one after another, in the order of the header
       -32     32  SHA-256 of everything before it

The header holds ``version`` (1), ``writer`` (the version of fastseed), ``state`` (the numbers and
strings of ``fastseed.state_dict``) and ``tensors`` (the length of each exact state by its key).
Numbers are padded with blanks, so that the size of a checkpoint does not depend on them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import torch

from .._utils import strict_json
from .._utils.validation import describe, type_error

MAGIC = b"fastseed"
VERSION = 1
_START = len(MAGIC) + 8
_DIGEST = 32
_WIDTH = 20  # characters of a number or a string; 2**64 - 1 has as many
_RNG = "rng."


class Damaged(ValueError):
    """The reason that bytes are not a checkpoint; completes the sentence "cannot load …: …"."""


def encode(function: str, state: dict[str, Any], writer: str) -> bytes:
    """Return the bytes of a state; TypeError for a value that no state has."""
    scalars, tensors = {}, {}
    for key, value in state.items():
        if isinstance(value, (int, str)):
            scalars[key] = value
        elif is_bytes(value):
            tensors[key] = value.contiguous().cpu().numpy().tobytes()
        else:
            rule = "an integer, a string or a 1-D uint8 tensor"
            raise type_error(function, f"state[{key!r}]", rule, value)
    sizes = {key: len(data) for key, data in tensors.items()}
    head = {"version": VERSION, "writer": writer[:16], "state": scalars, "tensors": sizes}
    header = _json(head).encode()
    whole = b"".join([MAGIC, len(header).to_bytes(8, "little"), header, *tensors.values()])
    return whole + hashlib.sha256(whole).digest()


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_json(v)}" for k, v in value.items()) + "}"
    return json.dumps(value).rjust(_WIDTH)


def decode(data: bytes) -> dict[str, Any]:
    """Return the state that these bytes hold; ``Damaged`` if one bit of them is wrong."""
    check_start(data)
    if hashlib.sha256(memoryview(data)[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise Damaged("checksum mismatch: the file is truncated or corrupted")
    at = _START + int.from_bytes(data[len(MAGIC) : _START], "little")
    try:
        header = strict_json.parse(data[_START:at])
        version, writer = header["version"], header["writer"]
        if version != VERSION:
            raise Damaged(f"it has version {version!r}, written by fastseed {describe(writer)}")
        state, sizes = dict(header["state"]), dict(header["tensors"])
        if not all(type(value) in (int, str) for value in state.values()):
            raise Damaged("the header must hold integers and strings")
        if not all(type(size) is int and size >= 0 for size in sizes.values()):
            raise Damaged("the lengths of exact states must be integers from 0 on")
    except (strict_json.Invalid, LookupError, TypeError) as error:
        raise Damaged(f"the header is not one of this format ({error})") from error
    if at + sum(sizes.values()) != len(data) - _DIGEST:
        raise Damaged("the exact states must end where the checksum begins")
    whole = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    for key, size in sizes.items():
        state[key] = whole[at : at + size].clone()
        at += size
    return state


def check_start(start: bytes) -> None:
    """Refuse the first bytes of a file of another kind."""
    if len(start) < _START + _DIGEST or not start.startswith(MAGIC):
        is_torch = start.startswith((b"PK", b"\x80"))
        hint = "; use torch.load and fastseed.load_state_dict" if is_torch else ""
        raise Damaged(f"it does not begin as a checkpoint of fastseed, but {start[:8]!r}{hint}")


# ---------------------------------------------------------------- parts of a state


def is_bytes(value: Any) -> bool:
    """Return whether a value has the form of an exact state."""
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.dim() == 1


def by_rank(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the state without exact states under "", and with one rank's under its number."""
    job = {key: value for key, value in state.items() if not is_bytes(value)}
    parts = {"": job}
    for key, value in state.items():
        if key not in job:
            rank = key.removeprefix(_RNG).partition(".")[0]
            parts.setdefault(rank, dict(job))[key] = value
    return parts


def merge(parts: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the union of states of one job at one point; each has a name for error texts."""
    first, whole = parts[0][0], dict(parts[0][1])
    for name, part in parts[1:]:
        for key in {**whole, **part}:
            held: Any = whole.get(key)
            other: Any = part.get(key)
            if is_bytes(held) and is_bytes(other):
                same = torch.equal(held, other)
            elif is_bytes(held) or is_bytes(other):
                same = held is None or other is None
            else:
                same = held == other
            if not same:
                raise Damaged(
                    f"its parts are not of one save: {key} is {describe(held)} in {first} and "
                    f"{describe(other)} in {name}"
                )
        whole.update(part)
    return whole
