"""The state of a seeder, without pickle.

A state is a flat dict of ints, strings and uint8 tensors, which ``torch.load(weights_only=True)``
reads (other formats: :mod:`fastseed.checkpoint`). It always holds the coordinates: enough to resume
at the beginning of a scope. With ``rng=True`` it also holds, under ``rng.<rank>.<stream>``, the
exact state of every generator that has one, to resume anywhere. These are the libraries' own
states as bytes. The keys are the same at any time and differ between ranks, so that the states of
several ranks can be put together and each rank finds its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

from .._backend import derive_ops
from .._utils import validation
from .._utils.errors import ReseedError
from ..derivation import streams
from ..distributed.mesh import STATE as MESH
from ..generators.adapter import GeneratorAdapter, unpack
from ..generators.default import NAMES

if TYPE_CHECKING:
    from .seeder import Seeder

logger = logging.getLogger("fastseed")

FORMAT = "fastseed"
VERSION = 1

RNG = "rng."
RANGES = {
    "master_seed": streams.MAX_MASTER,
    "world_size": streams.MAX_RANK + 1,
    "reseeded": 1,
    "task": streams.MAX_TASK,
    "epoch": streams.MAX_EPOCH,
    "step": streams.MAX_STEP,
}
_LOWEST = {"world_size": 1}
_BEFORE = streams.Coordinates(0, 0, 0)  # where `reseeded` is 0: before the first reseed
_EXPECTED = {"format": FORMAT, "version": VERSION, "derivation": derive_ops.DERIVATION_VERSION}
_KNOWN = frozenset({*_EXPECTED, "scheme", *RANGES})


def state_dict(seeder: Seeder, *, rng: bool = False) -> dict[str, Any]:
    """Return the state of ``seeder``; with ``rng`` a log line names callables, which have none."""
    at = seeder.scope
    task, epoch, step = at or _BEFORE
    state: dict[str, Any] = {
        **_EXPECTED,
        "scheme": seeder.scheme,
        "master_seed": seeder.master_seed,
        "world_size": seeder.world_size,
        "reseeded": int(at is not None),
        "task": task,
        "epoch": epoch,
        "step": step,
    }
    if not rng:
        return state
    stateless = []
    for name, adapter in seeder.adapters().items():
        exact = adapter.state()
        if exact is None:
            stateless.append(name)
        else:
            state[f"{RNG}{seeder.rank}.{name}"] = exact
    if stateless:
        logger.info("fastseed.state_dict: callables hold no state to save: %s", stateless)
    return state


def load_state_dict(seeder: Seeder, state: Any) -> bool:
    """Restore ``seeder`` from ``state``, after checking all of it.

    Exact states are restored on the rank that saved them, and those of a stream that all ranks
    share on every rank. A generator without one gets the state it had at the beginning of the
    scope, never another rank's; a log line says so.

    Returns:
        Whether exact states were restored.
    """
    at = check(state, seeder.scheme)
    adapters = seeder.adapters()
    exact, any_rank = _own(seeder, state)
    _check_exact(seeder.rank, exact, adapters)
    before = seeder.master_seed, seeder.scope
    seeder.move_to(int(state["master_seed"]), at)
    failed: ReseedError | None = None
    if at is not None:
        try:
            seeder.restore(*at)
        except ReseedError as error:  # every other generator still gets its exact state
            failed = error
            seeder.move_to(int(state["master_seed"]), at)
        except BaseException:  # refused before anything was set
            seeder.move_to(*before)
            raise
    for name, held in exact.items():
        adapters[name].load_state(held)
    if any_rank:
        _report(seeder, int(state["world_size"]), exact, adapters)
    if failed is not None:
        raise failed
    return bool(exact)


def _own(seeder: Seeder, state: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return this rank's exact states by stream name, and whether any rank has some."""
    prefix = f"{RNG}{seeder.rank}."
    keys = [key for key in state if key.startswith(RNG)]
    exact = {key[len(prefix) :]: state[key] for key in keys if key.startswith(prefix)}
    others = [key for key in keys if not key.startswith(prefix)]
    if exact and seeder.rank >= state["world_size"]:
        split_key("load_state_dict", prefix + next(iter(exact)), int(state["world_size"]))
    if 0 < len(exact.keys() & set(NAMES)) < len(NAMES):
        raise _refuse(f"state must hold exact states of all of {NAMES}", sorted(exact))
    if others:
        _add_shared(seeder, state, others, exact)
    return exact, bool(keys)


def _add_shared(
    seeder: Seeder, state: dict[str, Any], others: list[str], exact: dict[str, Any]
) -> None:
    """Add the states of streams that all ranks share, from the lowest rank that has them."""
    new = not exact
    found: dict[str, tuple[int, str]] = {}
    for key in others:
        rank, name = split_key("load_state_dict", key, int(state["world_size"]))
        if not is_bytes(state[key]):
            raise _refuse(f"state[{key!r}] must be a 1-D uint8 tensor", state[key])
        entry = seeder.registry.find(name) if name not in exact else None
        if entry is not None:
            shared = entry.shared
        else:
            built_in = name in NAMES or (name.startswith("torch.") and "/" not in name)
            shared = new and built_in and _all_share(seeder, state, rank, name)
        if shared:
            found[name] = min(found.get(name, (rank, key)), (rank, key))
    exact.update((name, state[key]) for name, (_, key) in found.items())


def _all_share(seeder: Seeder, state: dict[str, Any], rank: int, name: str) -> bool:
    """Return whether all ranks share a built-in stream, here and where ``rank`` saved it."""
    fields = seeder.rank_fields
    return fields.of(name) == streams.SHARED and fields.shares_mesh(mesh_of(state, rank))


def mesh_of(state: dict[str, Any], rank: int) -> str:
    """Return the text of the mesh of a rank's exact states; empty without a mesh."""
    held = state.get(f"{RNG}{rank}.{MESH}")
    if held is None:
        return ""
    return unpack(held).decode("utf-8", "replace") if is_bytes(held) else "?"


def split_key(function: str, key: str, world_size: int) -> tuple[int, str]:
    """Return rank and stream name of ``rng.<rank>.<stream>``."""
    rank, _, name = key[len(RNG) :].partition(".")
    known = rank.isascii() and rank.isdecimal() and len(rank) <= 8 and str(int(rank)) == rank
    if not (known and name and int(rank) < world_size):
        raise _refuse(
            f"state must hold exact states as 'rng.<rank below {world_size}>.<name>'", key
        )
    return int(rank), name


def _report(seeder: Seeder, saved: int, exact: dict[str, Any], adapters: dict[str, Any]) -> None:
    """Log which exact states were not restored."""
    here = seeder.world_size
    if saved > here and seeder.rank == 0:
        logger.warning(
            "fastseed.load_state_dict: the exact states of %s are dropped: there were %d ranks and "
            "now there are %d",
            f"rank {here}" if saved == here + 1 else f"ranks {here} to {saved - 1}",
            saved,
            here,
        )
    fresh = sorted(set(adapters) - set(exact))
    if set(NAMES) & set(fresh):
        logger.warning(
            "fastseed.load_state_dict: the exact states are other ranks' and this is rank %d: its "
            "generators are set to the beginning of the scope: %s",
            seeder.rank,
            fresh,
        )
    elif fresh:
        logger.info("fastseed.load_state_dict: set to the beginning of the scope: %s", fresh)


def _refuse(what: str, value: Any) -> ValueError:
    return ValueError(f"fastseed.load_state_dict: {what}, got {validation.describe(value)}")


def check(state: Any, scheme: str) -> streams.Coordinates | None:
    """Check everything but the exact states; return the coordinates."""
    if not isinstance(state, dict):
        raise TypeError(
            "fastseed.load_state_dict: state must be a dict from state_dict(), "
            f"got {validation.describe(state)} of type {type(state).__name__}"
        )
    for field, value in _EXPECTED.items():
        if type(state.get(field)) is not type(value) or state[field] != value:
            _check_field(state, field, value)
    _check_field(state, "scheme", scheme)
    if not state.keys() >= RANGES.keys():
        absent = f"state must hold {', '.join(sorted(RANGES.keys() - state.keys()))}"
        raise _refuse(absent, sorted(map(str, state)))
    for field, top in RANGES.items():
        value = state[field]
        if type(value) is not int or not _LOWEST.get(field, 0) <= value <= top:
            low = _LOWEST.get(field, 0)
            validation.check_int("load_state_dict", f"state[{field!r}]", value, low, top)
    for field in state:
        if field not in _KNOWN and not (isinstance(field, str) and field.startswith(RNG)):
            raise _refuse("state must hold nothing but what state_dict() wrote", field)
    at = streams.Coordinates(int(state["task"]), int(state["epoch"]), int(state["step"]))
    if state["reseeded"]:
        return at
    if at != _BEFORE:
        raise _refuse("state must hold zeros for task, epoch and step before a reseed", at)
    return None


def _check_field(state: dict[Any, Any], field: str, value: Any) -> None:
    held = state.get(field)
    if type(held) is type(value) and held == value:
        return
    newer = field in ("version", "derivation") and type(held) is int and held > value
    needs = "; a newer fastseed wrote it, load it with that one" if newer else ""
    raise _refuse(f"state[{field!r}] must be {value!r}{needs}", held)


def is_bytes(held: Any) -> bool:
    """Return whether it has the form of an exact state."""
    return isinstance(held, torch.Tensor) and held.dtype == torch.uint8 and held.dim() == 1


def _check_exact(rank: int, exact: dict[str, Any], adapters: dict[str, GeneratorAdapter]) -> None:
    for name, held in exact.items():
        where = f"state[{f'{RNG}{rank}.{name}'!r}]"
        if name not in adapters and name.startswith("torch."):
            raise _refuse(f"{where} {_absent(name)}", sorted(adapters))
        if name not in adapters:
            raise _refuse(
                f"{where} belongs to a generator that must be registered first", sorted(adapters)
            )
        if not is_bytes(held):
            raise _refuse(f"{where} must be a 1-D uint8 tensor", held)
        try:
            adapters[name].check_state(held)
        except ValueError as error:
            raise ValueError(f"fastseed.load_state_dict: {where} is damaged: {error}") from error


def _absent(name: str) -> str:
    """Return why this process has no generator of an accelerator."""
    module = getattr(torch, name.removeprefix("torch."), None)
    there = getattr(module, "is_available", lambda: False)()
    return (
        "needs its accelerator to be initialised first"
        if there
        else "belongs to an accelerator that this process does not have; load the state with that "
        "one, or save one of coordinates alone"
    )
