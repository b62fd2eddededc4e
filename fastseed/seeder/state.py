"""The state of a seeder, without pickle.

A flat dict of ints, strings and uint8 tensors. With ``rng=True`` it also holds the exact states,
the libraries' own as bytes: ``rng.<rank>.<stream>`` of each generator,
``rng.<rank>.process.mesh``, the fingerprint of the mesh, and ``rng.<rank>.process.blocks``, the
names of the blocks that were entered in the scope. States of ranks can be put together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import torch

from .._backend import tensors
from .._backend.reference import scalar
from .._utils import StateDict, strict_json, validation
from .._utils.log import logger
from ..derivation import scopes
from ..derivation.place import Place
from ..derivation.rank_fields import RankFields
from ..distributed.mesh import STATE as MESH
from ..generators.adapter import GeneratorAdapter, pack, unpack
from ..generators.default import NAMES
from .registry import Registry

RNG = "rng."
_BLOCKS = "process.blocks"
_RANGES = {
    "master_seed": (0, scopes.MAX_MASTER),
    "world_size": (1, scopes.MAX_RANK + 1),
    "reseeded": (0, 1),
    "task": (0, scopes.MAX_TASK),
    "epoch": (0, scopes.MAX_EPOCH),
    "step": (0, scopes.MAX_STEP),
}
_EXPECTED: dict[str, str | int] = {
    "format": "fastseed",
    "version": 1,
    "derivation": scalar.DERIVATION_VERSION,
}
_KNOWN = frozenset({*_EXPECTED, *_RANGES})
_EXACT_KEY = re.compile(r"rng\.(0|[1-9][0-9]{0,7})\.(.+)", re.DOTALL)

Adapters = Mapping[str, GeneratorAdapter]


def save_state(place: Place, world_size: int, adapters: Adapters | None = None) -> StateDict:
    """Return the state of a place: its scope, and exact states where adapters are given."""
    state: StateDict = {
        **_EXPECTED,
        "master_seed": place.master_seed,
        "world_size": world_size,
        "reseeded": int(place.scope is not None),
        **(place.scope or scopes.START)._asdict(),
    }
    if adapters is None:
        return state
    exact = {name: adapter.state() for name, adapter in adapters.items()}
    stateless = [name for name, held in exact.items() if held is None]
    if stateless:
        logger.info("fastseed.state_dict: callables hold no state to save: %s", stateless)
    fingerprint, entered = place.fields.fingerprint(), sorted(place.entries)
    exact[MESH] = pack(fingerprint.encode()) if fingerprint else None
    exact[_BLOCKS] = pack(json.dumps(entered).encode()) if entered else None
    prefix = f"{RNG}{place.fields.rank}."
    return state | {prefix + name: held for name, held in exact.items() if held is not None}


class ParsedState(NamedTuple):
    """A state that has been checked whole, as one rank takes it."""

    master_seed: int
    scope: scopes.Scope | None
    exact: dict[str, Any]  # by the name of the adapter
    entered: list[str]  # the blocks that were entered in the scope


def parse_state(
    fields: RankFields, registry: Registry, state: StateDict, adapters: Adapters
) -> ParsedState:
    """Check all of ``state``, and parse what the rank of ``fields`` takes of it; change nothing.

    A rank takes the exact states that it saved, and those of streams that all ranks share from the
    lowest rank that has them. Its other generators begin in the scope, never in another rank's
    state. On another mesh other ranks share a stream, so that exact states are not taken there.
    """
    at = check(state)
    exact: dict[str, Any] = {}
    entered: list[str] = []
    for name, key in _choose(fields, registry, state).items():
        adapter, where = adapters.get(name), f"state[{key!r}]"
        if name == _BLOCKS:
            entered = _parse_entered(where, state[key])
            continue
        if adapter is None:
            rule = "a generator that must be registered, or an accelerator that must be initialized"
            raise _refuse(f"{where} belongs to {rule}, first", sorted(adapters))
        try:
            exact[name] = adapter.parse_state(state[key])
        except ValueError as error:
            raise ValueError(f"fastseed.load_state_dict: {where} is damaged: {error}") from error
    return ParsedState(int(state["master_seed"]), at, exact, entered)


def _parse_entered(where: str, held: torch.Tensor) -> list[str]:
    try:
        names = strict_json.parse(unpack(held))
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise strict_json.Invalid("a list of names")
    except ValueError as error:
        text = f"fastseed.load_state_dict: {where} is damaged: it must be {error}"
        raise ValueError(text) from error
    return names


def _choose(fields: RankFields, registry: Registry, state: StateDict) -> dict[str, str]:
    """Return for each stream the key of its exact state."""
    rows = []
    for key in state:
        if key.startswith(RNG):
            found = _EXACT_KEY.fullmatch(key)
            if found is None or int(found[1]) >= int(state["world_size"]):
                rule = "'rng.<rank below world_size>.<name>'"
                raise _refuse(f"state must hold exact states as {rule}", key)
            if not is_bytes(state[key]):
                raise _refuse(f"state[{key!r}] must be a 1-D uint8 tensor with data", state[key])
            rank = int(found[1])
            rows.append((rank != fields.rank, rank, found[2], key))
    own = {name for other, _, name, _ in rows if not other}
    if own and not own.issuperset(NAMES):
        raise _refuse(f"state must hold exact states of all of {NAMES}", sorted(own))
    saved, here = _mesh_of(state, fields.rank), fields.fingerprint()
    if own and saved != here:
        logger.warning(
            "fastseed.load_state_dict: the exact states of rank %d are dropped: they are of mesh "
            "%s, and this process has mesh %s",
            *(fields.rank, saved or "None", here or "None"),
        )
    chosen: dict[str, str] = {}
    for other, rank, name, key in sorted(rows):  # this rank first
        entry = registry.entries.get(name)
        if not other and saved == here:
            wanted = True
        elif entry is not None:
            wanted = entry.shared
        else:
            shared = fields.of(name) == scopes.SHARED
            wanted = not own and shared and fields.shares_mesh(_mesh_of(state, rank))
        if wanted and name not in chosen and name != MESH:
            chosen[name] = key
    return chosen


def _mesh_of(state: StateDict, rank: int) -> str:
    """Return the text of the mesh of a rank's exact states; empty without a mesh."""
    held = state.get(f"{RNG}{rank}.{MESH}")
    return "" if held is None else unpack(held).decode("utf-8", "replace")


def log_missing(rank: int, world_size: int, state: StateDict, fresh: list[str]) -> None:
    """Log which exact states were not restored; ``fresh`` are generators that have none here."""
    if not any(key.startswith(RNG) for key in state):
        return
    saved = int(state["world_size"])
    if saved > world_size and rank == 0:
        logger.warning(
            "fastseed.load_state_dict: the exact states of ranks %d to %d are dropped: now there "
            "are %d ranks",
            *(world_size, saved - 1, world_size),
        )
    if set(NAMES) & set(fresh):
        logger.warning(
            "fastseed.load_state_dict: the exact states are other ranks' and this is rank %d: its "
            "generators are set to the beginning of the scope: %s",
            *(rank, fresh),
        )
    elif fresh:
        logger.info("fastseed.load_state_dict: set to the beginning of the scope: %s", fresh)


def _refuse(what: str, value: object) -> ValueError:
    return ValueError(f"fastseed.load_state_dict: {what}, got {validation.short_repr(value)}")


def check(state: object) -> scopes.Scope | None:
    """Check everything but the exact states; return the scope."""
    if not isinstance(state, dict):
        rule = "a dict from state_dict()"
        raise validation.type_error("load_state_dict", "state", rule, state)
    for field, value in _EXPECTED.items():
        held = state.get(field)
        if type(held) is not type(value) or held != value:
            newer = isinstance(value, int) and type(held) is int and held > value
            needs = "; a newer fastseed wrote it, load it with that one" if newer else ""
            raise _refuse(f"state[{field!r}] must be {value!r}{needs}", held)
    for field, (low, high) in _RANGES.items():
        validation.check_int("load_state_dict", f"state[{field!r}]", state.get(field), low, high)
    for field in state:
        if field not in _KNOWN and not (isinstance(field, str) and field.startswith(RNG)):
            raise _refuse("state must hold nothing but what state_dict() wrote", field)
    at = scopes.Scope(int(state["task"]), int(state["epoch"]), int(state["step"]))
    if state["reseeded"]:
        return at
    if at != scopes.START:
        raise _refuse("state must hold zeros for task, epoch and step before a reseed", at)
    return None


def is_bytes(held: object) -> TypeGuard[torch.Tensor]:
    """Return whether a value has the form of an exact state, and can be read."""
    if not isinstance(held, torch.Tensor) or held.dtype != torch.uint8 or held.dim() != 1:
        return False
    is_strided = held.layout == torch.strided
    return is_strided and tensors.has_data(held) and tensors.has_memory(held)
