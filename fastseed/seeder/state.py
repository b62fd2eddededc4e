"""The state of a seeder, without pickle.

A state is a flat dict of ints, strings and uint8 tensors, which ``torch.load(weights_only=True)``
takes as it is (other formats: :mod:`fastseed.checkpoint`). It always holds the coordinates: enough
to resume at the beginning of a scope. With ``rng=True`` it also holds, under
``rng.<rank>.<stream>``, the exact state of every generator that can show one, to resume anywhere.
The keys are the same at any time and differ between ranks where the values do, so that states of
several ranks can be put together and each finds its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch

from .._backend import derive_ops
from .._utils import validation
from .._utils.errors import ReseedError
from ..derivation import streams
from ..distributed.mesh import STATE as MESH
from ..distributed.mesh import RankFields
from ..generators.adapters import Sink, unpack
from ..generators.default import ProcessGenerators
from .registry import Bulk, Registry

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
_ALWAYS = ("python", "numpy", "torch.cpu")
_ALWAYS_NAMES = frozenset(_ALWAYS)


class Resumable(Protocol):
    """What a state is taken from and given to: a :class:`~fastseed.seeder.Seeder`."""

    master_seed: int
    rank: int
    world_size: int
    scheme: str
    _process: ProcessGenerators
    _registry: Registry
    rank_fields: RankFields

    @property
    def scope(self) -> streams.Coordinates | None:
        """Where the last reseed put it."""

    def exact_sinks(self) -> Iterator[tuple[str, Sink | Bulk]]:
        """Every generator that there is, by stream name."""

    def move_to(self, master_seed: int, at: streams.Coordinates | None) -> None:
        """Take another job's master seed and coordinates, without reseeding."""

    def restore(self, task: int, epoch: int, step: int) -> int:
        """Reseed, whether or not it was there before."""


def state_dict(seeder: Resumable, *, rng: bool = False) -> dict[str, Any]:
    """The state of ``seeder``; callables have none, and are named in a log line if ``rng``."""
    at = seeder.scope
    task, epoch, step = at or _BEFORE
    state: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "derivation": derive_ops.DERIVATION_VERSION,
        "scheme": seeder.scheme,
        "master_seed": seeder.master_seed,
        "world_size": seeder.world_size,
        "reseeded": int(at is not None),
        "task": task,
        "epoch": epoch,
        "step": step,
    }
    if rng:
        prefix = f"{RNG}{seeder.rank}."
        three = seeder._process
        for name, held in zip(three.sinks, three.states(), strict=True):
            state[prefix + name] = held
        stateless = []
        for name, sink in seeder.exact_sinks():
            if name in three.sinks:
                continue
            exact = sink.states() if isinstance(sink, Bulk) else sink.state()
            if exact is None:
                stateless.append(name)
            else:
                state[prefix + name] = exact
        if stateless:
            logger.info("fastseed.state_dict: callables hold no state to save: %s", stateless)
    return state


def load_state_dict(seeder: Resumable, state: Any) -> int | None:
    """Put ``seeder`` where ``state`` was, after checking all of it.

    Exact states are put back where this rank wrote them, and those of a stream that all ranks
    share on any rank. What has none gets the state it had at the beginning of the scope, and a log
    line says so: never another rank's.

    Returns:
        The key of the scope that exact states were put back in; None where there were none.
    """
    at = check(state, seeder.scheme)
    sinks = dict(seeder.exact_sinks())
    exact, ranks = _own(seeder, state)
    if exact:
        _check_exact(seeder, exact, sinks)
    before = seeder.master_seed, seeder.scope
    seeder.move_to(int(state["master_seed"]), at)
    failed: ReseedError | None = None
    scope: int | None = None
    if at is not None:
        try:
            scope = seeder.restore(*at)
        except ReseedError as error:  # every other generator still gets its exact state
            failed = error
            seeder.move_to(int(state["master_seed"]), at)
        except BaseException:  # refused before anything was set
            seeder.move_to(*before)
            raise
    _put_back(seeder._process, exact, sinks)
    if ranks:
        _tell(seeder, int(state["world_size"]), exact, sinks)
    if failed is not None:
        raise failed
    return scope if exact else None


def _own(seeder: Resumable, state: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The exact states that this rank takes, by stream name; whether there are any rank's."""
    prefix = f"{RNG}{seeder.rank}."
    cut = len(prefix)
    exact = {}
    others = []
    for key, held in state.items():
        if key.startswith(RNG):  # first: most keys are none of these
            if key.startswith(prefix):
                exact[key[cut:]] = held
            else:
                others.append(key)
    three = _ALWAYS_NAMES & exact.keys()
    if exact and seeder.rank >= state["world_size"]:
        split_key("load_state_dict", prefix + next(iter(exact)), int(state["world_size"]))
    if others:
        _add_shared(seeder, state, others, exact)
    if 0 < len(three) < len(_ALWAYS):
        raise _refuse(f"state must hold exact states of all of {_ALWAYS}", sorted(exact))
    return exact, bool(exact or others)


def _add_shared(
    seeder: Resumable, state: dict[str, Any], others: list[str], exact: dict[str, Any]
) -> None:
    """The states of generators that all ranks share, from the lowest rank that has them."""
    new = not exact
    found: dict[str, tuple[int, str]] = {}
    for key in others:
        rank, name = split_key("load_state_dict", key, int(state["world_size"]))
        if not is_bytes(state[key]):
            raise _refuse(f"state[{key!r}] must be a 1-D uint8 tensor", state[key])
        entry = seeder._registry.find(name) if name not in exact else None
        built_in = new and (name in _ALWAYS or (name.startswith("torch.") and "/" not in name))
        if (
            entry.shared
            if entry is not None
            else built_in and _all_share(seeder, state, rank, name)
        ):
            found[name] = min(found.get(name, (rank, key)), (rank, key))
    exact.update((name, state[key]) for name, (_, key) in found.items())


def _all_share(seeder: Resumable, state: dict[str, Any], rank: int, name: str) -> bool:
    """Whether a built-in stream is one for all ranks, here and where ``rank`` saved it."""
    return seeder.rank_fields.of(name) == streams.SHARED and seeder.rank_fields.shares_mesh(
        mesh_of(state, rank)
    )


def mesh_of(state: dict[str, Any], rank: int) -> str:
    """The text of the mesh that a rank's exact states are of; empty where there was none."""
    held = state.get(f"{RNG}{rank}.{MESH}")
    if held is None:
        return ""
    return unpack(held).decode("utf-8", "replace") if is_bytes(held) else "?"


def split_key(function: str, key: str, world_size: int) -> tuple[int, str]:
    """Rank and stream name of ``rng.<rank>.<stream>``."""
    rank, _, name = key[len(RNG) :].partition(".")
    known = rank.isascii() and rank.isdecimal() and len(rank) <= 8 and str(int(rank)) == rank
    if not (known and name and int(rank) < world_size):
        raise _refuse(
            f"state must hold exact states as 'rng.<rank below {world_size}>.<name>'", key
        )
    return int(rank), name


def _put_back(three: ProcessGenerators, exact: dict[str, Any], sinks: dict[str, Any]) -> None:
    rest = list(exact)
    if exact.keys() >= _ALWAYS_NAMES:
        three.load([exact[name] for name in _ALWAYS])
        rest = [name for name in exact if name not in _ALWAYS]
    for name in rest:
        sink = sinks[name]
        if isinstance(sink, Bulk):
            sink.load_states(exact[name])
        else:
            sink.load(exact[name])


def _tell(seeder: Resumable, saved: int, exact: dict[str, Any], sinks: dict[str, Any]) -> None:
    """What of a state with exact ones was not put back."""
    here = seeder.world_size
    if saved > here and seeder.rank == 0:
        logger.warning(
            "fastseed.load_state_dict: the exact states of %s are dropped: there were %d ranks and "
            "now there are %d",
            f"rank {here}" if saved == here + 1 else f"ranks {here} to {saved - 1}",
            saved,
            here,
        )
    fresh = sorted(set(sinks) - set(exact))
    if _ALWAYS_NAMES & set(fresh):
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
    """Everything but the exact states; the coordinates it holds."""
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
    """Whether it has the form of an exact state."""
    return isinstance(held, torch.Tensor) and held.dtype == torch.uint8 and held.dim() == 1


def _check_exact(seeder: Resumable, exact: dict[str, Any], sinks: dict[str, Any]) -> None:
    three = [exact[name] for name in _ALWAYS if name in exact]
    names: Iterable[str] = exact
    if len(three) == len(_ALWAYS) and seeder._process.takes(
        three
    ):  # in one call; what is wrong is said below
        names = [name for name in exact if name not in _ALWAYS]
    for name in names:
        where = f"state[{f'{RNG}{seeder.rank}.{name}'!r}]"
        if name not in sinks and name.startswith("torch."):
            raise _refuse(f"{where} {_absent(name)}", sorted(sinks))
        if name not in sinks:
            raise _refuse(
                f"{where} belongs to a generator that must be registered first", sorted(sinks)
            )
        held = exact[name]
        if not is_bytes(held):
            raise _refuse(f"{where} must be a 1-D uint8 tensor", held)
        sink = sinks[name]
        try:
            if isinstance(sink, Bulk):
                sink.split_states(held)
            else:
                sink.check(held)
        except ValueError as error:
            raise ValueError(f"fastseed.load_state_dict: {where} is damaged: {error}") from error


def _absent(name: str) -> str:
    """Why there is no generator of an accelerator."""
    module = getattr(torch, name.removeprefix("torch."), None)
    there = getattr(module, "is_available", lambda: False)()
    return (
        "needs its accelerator to be initialised first"
        if there
        else "belongs to an accelerator that this process does not have; load the state with that "
        "one, or save one of coordinates alone"
    )
