"""States as bytes: what a checkpoint file holds, version 1. No pickle, and nothing is executed.

All integers are little-endian.

    offset  bytes
         0      8  "fastseed"
         8      2  version of this format: 1
        10      2  version of the derivation
        12      4  how many exact states follow
        16      8  length of the whole, the digest included
        24     16  the version of fastseed that wrote it, filled up with zeros
        40     24  where the job was: master seed (8), step (8), epoch (4), task (4)
        64      4  world size
        68      4  1 if there was a reseed before, else 0
        72     16  scheme, filled up with zeros
        88         exact states: rank (4), length of the name (2), length of the state (8),
                   the name in UTF-8, the state
       -32     32  SHA-256 of everything before it

Any version has the same first 10 bytes, length, writer and digest, so that what is damaged and
what is newer can be told apart.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

import torch

from .._utils import validation
from ..generators.adapters import pack
from ..seeder import state as states
from .file_io import Damaged

MAGIC = b"fastseed"
VERSION = 1
FRAME = struct.Struct("<8sHHIQ16s")  # as far as the writer's version
DIGEST = 32
SMALLEST = FRAME.size + DIGEST

_JOB = struct.Struct("<QQIIII16s")
_ENTRY = struct.Struct("<IHQ")
_LONGEST = 2**16 - 1  # bytes of a name
_HEADER = FRAME.size + _JOB.size


def encode(state: dict[str, Any], writer: str) -> bytes:
    """The bytes of a state that :func:`fastseed.state_dict` made."""
    entries = []
    for key, held in state.items():
        if key.startswith(states.RNG):
            rank, name = states.split_key("checkpoint.to_tensors", key, state["world_size"])
            if not states.is_bytes(held):
                raise TypeError(
                    f"fastseed.checkpoint.to_tensors: state[{key!r}] must be a 1-D uint8 tensor, "
                    f"got {validation.describe(held)}"
                )
            named, data = name.encode(), held.contiguous().cpu().numpy().tobytes()
            if len(named) > _LONGEST:
                raise ValueError(
                    f"fastseed.checkpoint.to_tensors: names must have at most {_LONGEST} bytes, "
                    f"got {len(named)}: {validation.describe(name)}"
                )
            entries += [_ENTRY.pack(rank, len(named), len(data)), named, data]
    body = b"".join(entries)
    length = _HEADER + len(body) + DIGEST
    frame = FRAME.pack(
        *(MAGIC, VERSION, state["derivation"], len(entries) // 3, length, writer.encode()[:16])
    )
    where = (state[field] for field in ("master_seed", "step", "epoch", "task"))
    job = _JOB.pack(*where, state["world_size"], state["reseeded"], state["scheme"].encode())
    whole = frame + job + body
    return whole + hashlib.sha256(whole).digest()


def check_frame(start: bytes, size: int) -> None:
    """Refuse ``size`` bytes that begin with ``start`` if they are foreign or not complete."""
    if start[: len(MAGIC)] != MAGIC[: len(start)] or not start:
        torchs = start.startswith((b"PK", b"\x80"))
        hint = "; for a file of torch.save: torch.load, then load_state_dict" if torchs else ""
        raise Damaged(f"it must begin with {MAGIC!r}, got {start[:8]!r}{hint}")
    if size < SMALLEST or len(start) < FRAME.size:
        raise Damaged(f"it must hold {SMALLEST} bytes at least, got {size}: it was cut off")
    length = FRAME.unpack_from(start)[4]
    if size != length:
        says = "it was cut off" if size < length else "something was appended, or it is damaged"
        raise Damaged(f"it must hold {length} bytes, got {size}: {says}")


def check_version(start: bytes) -> None:
    """Refuse what another version wrote; only once the digest was found right."""
    version, writer = FRAME.unpack_from(start)[1], FRAME.unpack_from(start)[5]
    if version != VERSION:
        name = writer.rstrip(b"\0").decode("ascii", "replace")
        needs = f"fastseed {name} or newer is needed" if version > VERSION else "it is none"
        raise Damaged(f"its version must be {VERSION}, got {version}: {needs}")


def decode(data: bytes) -> dict[str, Any]:
    """The state that these bytes hold; :class:`Damaged` if a bit of them is wrong."""
    check_frame(data[: FRAME.size], len(data))
    if hashlib.sha256(memoryview(data)[:-DIGEST]).digest() != data[-DIGEST:]:
        raise Damaged("its checksum is wrong: it is damaged")
    check_version(data)
    if len(data) < _HEADER + DIGEST:
        raise Damaged(f"it must hold {_HEADER + DIGEST} bytes at least, got {len(data)}")
    _, _, derivation, count, _, _ = FRAME.unpack_from(data)
    master, step, epoch, task, world_size, reseeded, scheme = _JOB.unpack_from(data, FRAME.size)
    state: dict[str, Any] = {
        "format": states.FORMAT,
        "version": states.VERSION,
        "derivation": derivation,
        "scheme": scheme.rstrip(b"\0").decode("ascii", "replace"),
        "master_seed": master,
        "world_size": world_size,
        "reseeded": reseeded,
        "task": task,
        "epoch": epoch,
        "step": step,
    }
    at, end = _HEADER, len(data) - DIGEST
    for _ in range(count):
        if end - at < _ENTRY.size:
            raise Damaged(f"it must hold {count} exact states, got {len(state) - len(_FIELDS)}")
        rank, named, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if end - at < named + length:
            raise Damaged(f"an exact state must end before byte {end}, got {at + named + length}")
        try:
            key = f"{states.RNG}{rank}.{data[at : at + named].decode()}"
        except UnicodeDecodeError as error:
            raise Damaged(f"names must be UTF-8, got {data[at : at + named]!r}") from error
        if key in state:
            raise Damaged(f"it must hold each exact state once, got another {key!r}")
        at += named
        state[key] = pack(data[at : at + length])
        at += length
    if at != end:
        raise Damaged(f"its exact states must end at byte {end}, got {at}")
    return state


_FIELDS = ("format", "version", "derivation", "scheme", *states.RANGES)


def job_of(state: dict[str, Any]) -> dict[str, Any]:
    """All of a state but the exact ones."""
    return {field: state[field] for field in _FIELDS}


def of_rank(state: dict[str, Any], rank: int) -> dict[str, Any]:
    """A state with the exact ones of one rank alone."""
    prefix = f"{states.RNG}{rank}."
    return job_of(state) | {k: v for k, v in state.items() if k.startswith(prefix)}


def ranks_of(state: dict[str, Any]) -> list[int]:
    """The ranks whose exact states these are, ascending."""
    keys = (key for key in state if key.startswith(states.RNG))
    return sorted(
        {states.split_key("checkpoint.to_tensors", k, state["world_size"])[0] for k in keys}
    )


def merge(parts: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """One state of several, which must be of one job at one point; each with a name for errors."""
    (first, whole), *others = parts
    whole = dict(whole)
    for where, part in others:
        for field in _FIELDS:
            if part[field] != whole[field]:
                raise Damaged(
                    f"its parts must be of one save, got {field} {validation.describe(whole[field])} "
                    f"in {first} and {validation.describe(part[field])} in {where}"
                )
        for key, held in part.items():
            if key.startswith(states.RNG):
                if key in whole and not torch.equal(whole[key], held):
                    raise Damaged(f"its parts must not differ in {key!r}, got another in {where}")
                whole[key] = held
    return whole
