"""The state of a seeder, without pickle.

A state is a flat dict of ints, strings and uint8 tensors, which ``torch.load(weights_only=True)``
and ``torch.distributed.checkpoint`` take as it is. It always holds the coordinates: enough to
resume at the beginning of a scope. With ``rng=True`` it also holds, under ``rng.<rank>.<stream>``,
the exact state of every generator that can show one, to resume anywhere. The keys are the same at
any time and differ between ranks where the values do, so that a distributed checkpoint neither
misses one nor takes another rank's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from . import _ops, streams
from .errors import ReseedError
from .registry import Bulk
from .sinks import Sink

logger = logging.getLogger("fastseed")

FORMAT = "fastseed"
VERSION = 1

_RNG = "rng."
_RANGES = {
    "master_seed": streams.MAX_MASTER,
    "world_size": streams.MAX_RANK + 1,
    "reseeded": 1,
    "task": streams.MAX_TASK,
    "epoch": streams.MAX_EPOCH,
    "step": streams.MAX_STEP,
}
_SCOPE = ("task", "epoch", "step")  # zeros where `reseeded` is 0: before the first reseed
_ALWAYS = ("python", "numpy", "torch.cpu")


class Resumable(Protocol):
    """What a state is taken from and given to: a :class:`~fastseed.seeder.Seeder`."""

    master_seed: int
    rank: int
    world_size: int
    scheme: str

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
    state: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "derivation": _ops.DERIVATION_VERSION,
        "scheme": seeder.scheme,
        "master_seed": seeder.master_seed,
        "world_size": seeder.world_size,
        "reseeded": int(seeder.scope is not None),
        **(seeder.scope or streams.Coordinates(0, 0, 0))._asdict(),
    }
    if rng:
        stateless = []
        for name, sink in seeder.exact_sinks():
            held = sink.states() if isinstance(sink, Bulk) else sink.state()
            if held is None:
                stateless.append(name)
            else:
                state[f"{_RNG}{seeder.rank}.{name}"] = held
        if stateless:
            logger.info("fastseed.state_dict: callables hold no state to save: %s", stateless)
    return state


def load_state_dict(seeder: Resumable, state: Any) -> None:
    """Put ``seeder`` where ``state`` was, after checking all of it.

    Exact states are put back where this rank wrote them; a generator without one, or any on
    another rank, gets the state it had at the beginning of the scope, and a log line says so.
    """
    at = _check(seeder, state)
    prefix = f"{_RNG}{seeder.rank}."
    exact = {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}
    own = bool(exact) or not any(k.startswith(_RNG) for k in state)
    sinks = dict(seeder.exact_sinks())
    if exact:
        _check_exact(prefix, exact, sinks)
    elif not own:
        logger.warning(
            "fastseed.load_state_dict: the exact states are other ranks' and this is rank %d: its "
            "generators are set to the beginning of the scope",
            seeder.rank,
        )
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
        sink = sinks[name]
        if isinstance(sink, Bulk):
            sink.load_states(held)
        else:
            sink.load(held)
    fresh = sorted(set(sinks) - set(exact)) if exact else []
    if fresh:
        logger.info("fastseed.load_state_dict: set to the beginning of the scope: %s", fresh)
    if failed is not None:
        raise failed


def _refuse(what: str, value: Any) -> ValueError:
    return ValueError(f"fastseed.load_state_dict: {what}, got {streams.describe(value)}")


def _check(seeder: Resumable, state: Any) -> streams.Coordinates | None:
    """Everything but the exact states; the coordinates it holds."""
    if not isinstance(state, dict):
        raise TypeError(
            "fastseed.load_state_dict: state must be a dict from state_dict(), "
            f"got {streams.describe(state)} of type {type(state).__name__}"
        )
    if state.get("format") != FORMAT:
        raise _refuse(f"state['format'] must be {FORMAT!r}", state.get("format"))
    expected = (
        ("version", VERSION),
        ("derivation", _ops.DERIVATION_VERSION),
        ("scheme", seeder.scheme),
    )
    for field, value in expected:
        if type(state.get(field)) is not type(value) or state[field] != value:
            raise _refuse(f"state[{field!r}] must be {value!r}", state.get(field))
    missing = {"master_seed", "world_size", "reseeded", *_SCOPE} - set(state)
    if missing:
        absent = f"state must hold {', '.join(sorted(missing))}"
        raise _refuse(absent, sorted(map(str, state)))
    for field, top in _RANGES.items():
        if field in state:
            low = 1 if field == "world_size" else 0
            streams.check_int("load_state_dict", f"state[{field!r}]", state[field], low, top)
    known = {"format", "version", "derivation", "scheme", *_RANGES}
    for field in state:
        if field not in known and not (isinstance(field, str) and field.startswith(_RNG)):
            raise _refuse("state must hold nothing but what state_dict() wrote", field)
    if not state["reseeded"]:
        return None
    return streams.Coordinates(*(int(state[field]) for field in _SCOPE))


def _check_exact(prefix: str, exact: dict[str, Any], sinks: dict[str, Any]) -> None:
    if exact and not exact.keys() >= set(_ALWAYS):
        raise _refuse(f"state must hold exact states of all of {_ALWAYS}", sorted(exact))
    for name, held in exact.items():
        where = f"state['{prefix}{name}']"
        if name not in sinks and name.startswith("torch."):
            raise _refuse(f"{where} needs its accelerator to be initialised first", sorted(sinks))
        if name not in sinks:
            raise _refuse(
                f"{where} belongs to a generator that must be registered first", sorted(sinks)
            )
        if not isinstance(held, torch.Tensor) or held.dtype != torch.uint8 or held.dim() != 1:
            raise _refuse(f"{where} must be a 1-D uint8 tensor", held)
        sink = sinks[name]
        try:
            if isinstance(sink, Bulk):
                sink.split_states(held)
            else:
                sink.check(held)
        except ValueError as error:
            raise ValueError(f"fastseed.load_state_dict: {where} is damaged: {error}") from error
