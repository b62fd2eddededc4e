"""The state of a ledger as plain data, and what its file of results adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .._utils import JSON, StateDict, strict_json, validation
from .units import Plan

_FORMAT, _VERSION = "fastseed.rollouts.Ledger", 1


@dataclass
class State:
    """The part of a ledger that a checkpoint has."""

    batches: int = 0  # that were trained: the policy version
    frontier: int = 0  # all units from here on are open
    holes: list[int] = field(default_factory=list)  # open units below
    versions: dict[int, int] = field(default_factory=dict)  # of open units, where not as planned
    dropped: dict[str, int] = field(default_factory=dict)
    expired: int = 0
    regenerated: int = 0

    @property
    def trained(self) -> int:
        return self.frontier - len(self.holes) - sum(self.dropped.values())


@dataclass
class Kept:
    """What a file of results has and a state does not include."""

    results: dict[int, tuple[int, JSON]] = field(default_factory=dict)  # version and result
    drops: dict[int, str] = field(default_factory=dict)
    batches: dict[int, list[int]] = field(default_factory=dict)
    settled: int = 0  # rows up to this one are in the state

    def read(self, plan: Plan, state: State, rows: Iterable[tuple[int, StateDict]]) -> None:
        """Keep what is not in the state; the last row of a unit or batch counts."""
        holes, all_are = set(state.holes), True
        for number, row in rows:
            unit = row.get("unit")
            if unit is None:
                is_in_state = row["batch"] < state.batches
            else:
                is_in_state = unit < state.frontier and unit not in holes
            if all_are:
                all_are, self.settled = is_in_state, number if is_in_state else number - 1
            if is_in_state:
                continue
            if unit is None:
                self.batches[row["batch"]] = row["units"]
                self.drops.update(dict.fromkeys(row["stale"], "stale"))
            elif "reason" in row:
                self.drops[unit] = row["reason"]
            elif row["version"] <= state.batches and not plan.is_stale(
                unit, row["version"], state.batches
            ):  # else by a policy that is no more, or too old by now
                self.results[unit] = row["version"], row["result"]


def header(plan: Plan) -> StateDict:
    """Return what identifies a job, and is in its state and its results."""
    found = {"format": _FORMAT, "format_version": _VERSION, **asdict(plan)}
    del found["max_staleness"]  # a restart may have another one
    return found


def check(function: str, argument: str, ours: StateDict, theirs: Mapping[str, Any]) -> None:
    """ValueError unless a header is that of this job, or of the same one with fewer epochs."""
    for name, value in ours.items():
        found, rule = theirs.get(name), f"{value!r} as in this ledger"
        is_same = type(found) is type(value) and found == value
        if name == "epochs" and isinstance(found, int) and found != value:
            rule += " (or fewer, where batch_size divides prompts)"
            is_same = found < value and ours["prompts"] % ours["batch_size"] == 0
        if not is_same:
            raise validation.value_error(function, f"{argument}[{name!r}]", rule, found)


def write(plan: Plan, state: State) -> StateDict:
    """Return a state as ints, strings and lists of them."""
    versions = [list(pair) for pair in sorted(state.versions.items())]
    dropped = [list(pair) for pair in state.dropped.items()]
    own = {**vars(state), "versions": versions, "dropped": dropped}
    return strict_json.signed({**header(plan), **own})


def read(function: str, plan: Plan, state: object) -> State:
    """Return what ``write`` was called with; an error if it is of another job, or was changed."""
    given = validation.check_instance(function, "state", state, Mapping, "a dict")
    check(function, "state", header(plan), given)
    entries: dict[str, Any] = {**given}
    if not strict_json.is_whole(entries):
        rule = "as state_dict returned it"
        raise validation.value_error(function, "state", rule, "one with another SHA-256")
    own = {name: entries[name] for name in vars(State())}
    for name, kind in (("holes", list), ("versions", dict), ("dropped", dict)):
        own[name] = kind(own[name])
    return State(**own)
