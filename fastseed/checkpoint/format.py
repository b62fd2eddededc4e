"""The bytes of a state: what ``torch.save`` writes for it, and the SHA-256 of that."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Sequence

import torch

from .._utils import StateDict
from .._utils.validation import short_repr, type_error
from ..seeder.state import is_bytes

_DIGEST = 32
_PADDING = "padding"  # blanks: tensors of fixed sizes need a size that no number changes
_WIDEST = len(pickle.dumps(2**64 - 1, 2))


class Damaged(ValueError):
    """The reason that bytes are not a checkpoint; completes the sentence "cannot load …: …"."""


def encode(function: str, state: StateDict) -> bytes:
    """Return the bytes of a state; TypeError for a value that no state has."""
    held, blanks = {}, 0
    for key, value in state.items():
        held[key] = value
        if is_bytes(value):  # a view would be saved with all of its storage
            held[key] = value.cpu().clone(memory_format=torch.contiguous_format)
        elif isinstance(value, int):
            blanks += _WIDEST - len(pickle.dumps(value, 2))
        elif not isinstance(value, str):
            rule = "an integer, a string or a 1-D uint8 tensor with data"
            raise type_error(function, f"state[{key!r}]", rule, value)
    file = io.BytesIO()
    torch.save({**held, _PADDING: " " * blanks}, file)
    return file.getvalue() + hashlib.sha256(file.getbuffer()).digest()


def decode(data: bytes) -> StateDict:
    """Return the state that these bytes hold; ``Damaged`` if one bit of them is wrong."""
    whole = memoryview(data)[:-_DIGEST]
    if hashlib.sha256(whole).digest() != data[-_DIGEST:]:
        raise Damaged(
            f"its checksum is wrong (it has {len(data)} bytes): it is truncated or corrupted, or "
            "not written by fastseed.checkpoint"
        )
    try:
        state = torch.load(io.BytesIO(whole), map_location="cpu", weights_only=True)
    except Exception as error:  # of many types
        raise Damaged(f"torch.load refuses it ({type(error).__name__})") from error
    if not (isinstance(state, dict) and type(state.get("world_size")) is int):
        raise Damaged("it does not hold a state of fastseed")
    state.pop(_PADDING, None)
    return state


def by_rank(state: StateDict) -> dict[str, StateDict]:
    """Return the state without exact states under "", and with one rank's under its number."""
    job = {key: value for key, value in state.items() if not is_bytes(value)}
    parts = {"": job}
    for key, value in state.items():
        if key not in job:
            rank = key.removeprefix("rng.").partition(".")[0]
            parts.setdefault(rank, dict(job))[key] = value
    return parts


def merge(parts: Sequence[tuple[str, StateDict]]) -> StateDict:
    """Return the union of states of one job at one point; each has a name for error texts."""
    first, whole = parts[0][0], dict(parts[0][1])
    for name, part in parts[1:]:
        for key in {**whole, **part}:
            held, other = whole.get(key), part.get(key)
            is_exact = is_bytes(held) or is_bytes(other)  # the exact state of one rank
            if not is_exact and held != other:
                raise Damaged(
                    f"its parts are not of one save: {key} is {short_repr(held)} in {first} and "
                    f"{short_repr(other)} in {name}"
                )
        whole.update(part)
    return whole
