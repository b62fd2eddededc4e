"""The state of a ledger as plain data: what it holds, and the checks of a state from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .._utils import JSON, StateDict, validation
from .units import Plan, read_ranges, write_ranges

_FUNCTION = "rollouts.Ledger.load_state_dict"
_FORMAT, _VERSION = "fastseed.rollouts.Ledger", 1
_PAIRS = re.compile(r"(\d{1,20}:\d{1,20}( (?!$)|$))*")


@dataclass
class State:
    """The part of a ledger that a checkpoint has."""

    batches: int = 0  # that were trained: the policy version
    groups: int = 0  # all units from here on are open
    holes: list[int] = field(default_factory=list)  # open units below
    versions: dict[int, int] = field(default_factory=dict)  # of open units, where not as planned
    dropped: dict[str, int] = field(default_factory=dict)
    expired: int = 0
    regenerated: int = 0

    def trained(self, plan: Plan) -> int:
        """Return how many units were trained."""
        return self.groups * plan.samples - len(self.holes) - sum(self.dropped.values())


@dataclass
class Kept:
    """The records of a journal that a state does not include."""

    results: dict[int, tuple[int, JSON]] = field(default_factory=dict)  # version and result
    drops: dict[int, str] = field(default_factory=dict)
    batches: dict[int, list[int]] = field(default_factory=dict)

    def read(self, plan: Plan, state: State, records: Iterable[StateDict]) -> None:
        """Keep what is not in the state; the last record of a unit or batch counts."""
        holes, frontier = set(state.holes), state.groups * plan.samples
        for record in records:
            if "batch" in record:
                if record["batch"] >= state.batches:
                    self.batches[record["batch"]] = _numbers(plan, record["units"])
                    self.drops.update(dict.fromkeys(_numbers(plan, record["stale"]), "stale"))
                continue
            number = record["unit"]
            if number < frontier and number not in holes:
                continue
            if "reason" in record:
                self.drops[number] = record["reason"]
            elif record["version"] <= state.batches:  # else by a policy that is no more
                self.results[number] = record["version"], record["result"]


def header(plan: Plan) -> StateDict:
    """Return what identifies a job, and is in its state and its journal."""
    return {"format": _FORMAT, "format_version": _VERSION, **asdict(plan)}


def write(plan: Plan, state: State) -> StateDict:
    """Return a state as ints, strings and a dict of ints."""
    versions = " ".join(f"{number}:{v}" for number, v in sorted(state.versions.items()))
    return {
        **header(plan),
        "batches": state.batches,
        "trained": state.trained(plan),
        "frontier": state.groups * plan.samples,
        "holes": write_ranges(state.holes),
        "versions": versions,
        "dropped": dict(state.dropped),
        "expired": state.expired,
        "regenerated": state.regenerated,
    }


def read(plan: Plan, state: object) -> State:
    """Return what ``write`` was called with.

    Raises:
        TypeError, ValueError: it is not a state of this job.
    """
    given = validation.check_instance(_FUNCTION, "state", state, Mapping, "a dict")
    expected = header(plan)
    names = [*expected, *write(plan, State())]
    for name in names:
        if name not in given:
            raise validation.value_error(_FUNCTION, "state", f"with an entry {name!r}", list(given))
    for name, value in expected.items():
        if given[name] != value or isinstance(given[name], bool):
            rule = f"{value!r} as in this ledger"
            raise validation.value_error(_FUNCTION, f"state[{name!r}]", rule, given[name])
    found = State(
        batches=_int(given, "batches", plan.batches),
        groups=_int(given, "frontier", plan.groups * plan.samples) // plan.samples,
        expired=_int(given, "expired", 2**63),
        regenerated=_int(given, "regenerated", 2**63),
    )
    frontier = found.groups * plan.samples
    found.holes = read_ranges(_FUNCTION, "state['holes']", given["holes"], frontier)
    found.versions = _versions(plan, found, given["versions"])
    argument = "state['dropped']"
    dropped = validation.check_instance(_FUNCTION, argument, given["dropped"], Mapping, "a dict")
    for reason, count in dropped.items():
        reason = validation.check_text(_FUNCTION, "a reason of state['dropped']", reason)
        what = f"{argument}[{reason!r}]"
        found.dropped[reason] = validation.check_int(_FUNCTION, what, count, 1, frontier)
    _check_whole(plan, found, given)
    return found


def _numbers(plan: Plan, text: str) -> list[int]:
    return read_ranges(_FUNCTION, "journal", text, plan.units)


def _int(given: Mapping[str, Any], name: str, most: int) -> int:
    return validation.check_int(_FUNCTION, f"state[{name!r}]", given[name], 0, most)


def _versions(plan: Plan, found: State, text: object) -> dict[int, int]:
    argument, rule = "state['versions']", "units with versions, such as '3:1 9:2'"
    text = validation.check_instance(_FUNCTION, argument, text, str, rule)
    if not _PAIRS.fullmatch(text):
        raise validation.value_error(_FUNCTION, argument, rule, text)
    pairs = (part.split(":") for part in text.split())
    versions = {int(number): int(version) for number, version in pairs}
    holes, frontier = set(found.holes), found.groups * plan.samples
    for number, version in versions.items():
        is_open = number in holes or frontier <= number < plan.groups * plan.samples
        if not is_open or version > found.batches:
            rule = f"of open units, with versions up to {found.batches}"
            raise validation.value_error(_FUNCTION, argument, rule, f"{number}:{version}")
    return versions


def _check_whole(plan: Plan, found: State, given: Mapping[str, Any]) -> None:
    """Check that the numbers fit together: an edited or damaged state loses and repeats nothing."""
    settled = plan.end_of(found.batches - plan.window)  # groups that the last batch had to include
    fits = (
        given["frontier"] % plan.samples == 0
        and settled <= found.groups <= plan.end_of(found.batches + plan.lag)
        and (not found.holes or found.holes[0] >= settled * plan.samples)
        and found.trained(plan) == given["trained"]
        and found.trained(plan) <= found.batches * plan.batch_size * plan.samples
    )
    if not fits:
        numbers = {name: given[name] for name in ("batches", "trained", "frontier", "holes")}
        rule = "whole, as state_dict returned it"
        raise validation.value_error(_FUNCTION, "state", rule, numbers)
