"""Read what a checkpoint holds, what is wrong with it, and the samples of its job; compare two."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from ..._utils import JSON, validation
from ...data import Lineage
from ...data.history import Point
from ...data.lineage import Visits
from ...digest.trees import Difference
from .folders import OWN_FILE, noted, parts_of
from .states import Found, GeneratorState, journals_in, states_in

_FUNCTION = "tools.checkpoints.inspect"
_NAMES = 6  # in a list


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What a checkpoint, or a job's contract, holds. It is true if there is no finding."""

    path: str
    states: tuple[Found, ...]  # by owner and stream
    journals: tuple[tuple[str, Lineage], ...]  # with their places
    findings: tuple[str, ...]  # shared, missing and damaged states, and files that cannot be read
    problems: tuple[str, ...]  # those findings that are damage, or cannot be read

    def __bool__(self) -> bool:
        return not self.findings

    def lineage(self, task: int | None = None) -> Lineage:
        """Return the lineage of the one job; ``task`` chooses from the loops of several."""
        every = {one.history: one for _, one in self.journals}
        chosen = [one for one in every.values() if task in (None, one.history.task)]
        if len(chosen) == 1:
            return chosen[0]
        problem = "; ".join(self.problems[:_NAMES]) or "it has none"
        if every:
            tasks = sorted(one.history.task for one in every.values())
            problem = f"it has {len(chosen)}; its tasks: {tasks}"
        of = "" if task is None else f" of task {task}"
        rule = f"a contract, or a checkpoint with one journal of fastseed.data.steps{of}"
        raise _error(rule, self.path, problem)


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Read the states of generators and the journals in a file or the folder of one checkpoint.

    Pickles are read as data. The checksums of zip files and of fastseed are checked.
    """
    path = validation.check_path(_FUNCTION, "path", path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"fastseed.{_FUNCTION}: path must exist, got {path!r}")
    states: list[Found] = []
    journals: list[tuple[str, Lineage]] = []
    problems: list[str] = []
    count = 0
    writers: set[int] = set()
    for part in parts_of(path, problems):
        with noted(part.source, problems):
            own = " of fastseed" if OWN_FILE.search(part.source) else ""  # not the Trainer's states
            states += (one._replace(stream=one.stream + own) for one in states_in(part, problems))
        try:
            journals += journals_in(part)
        except ValueError as error:
            raise _error("a checkpoint without damage", path, error) from error
        count += 1
        writers |= set() if part.writer is None else {part.writer}
    if not count:
        why = "; ".join(problems[:_NAMES]) or "it has no file of a checkpoint"
        raise _error("a checkpoint that can be read", path, why)
    named = sorted(_distinct(states), key=_order)
    found = [*_findings(named, len(writers))]
    if not states and not journals:
        found = ["it holds no state of a generator: a job that resumes from it draws other numbers"]
    findings = (*found, *problems)
    return Inspection(path, tuple(named), tuple(journals), findings, tuple(problems))


def _error(rule: str, path: str, problem: object) -> ValueError:
    return ValueError(f"fastseed.{_FUNCTION}: path must be {rule}, got {path!r} ({problem})")


def _distinct(states: list[Found]) -> Iterator[Found]:
    """Give states of one owner and stream names of their own, by keys, file or numbers."""
    files: dict[str, set[str]] = defaultdict(set)
    for one in states:
        files[one.owner].add(one.source.partition(": ")[0])
    count = Counter((one.owner, one.stream) for one in states)
    used: Counter[tuple[str, str]] = Counter()
    for one in states:
        file, _, keys = one.source.partition(": ")
        if count[one.owner, one.stream] > 1:  # the only file of a checkpoint is not named
            where = one.source if len(files[one.owner]) > 1 else keys or file
            one = one._replace(stream=f"{one.stream} in {where}")
        used[one.owner, one.stream] += 1
        number = used[one.owner, one.stream]
        yield one if number == 1 else one._replace(stream=f"{one.stream} ({number})")


def _order(one: Found) -> tuple[object, ...]:
    """Sort by owner, numbers by value, and stream."""
    parts = re.split(r"(\d+)", one.owner)
    return [int(part) if part.isdecimal() else part for part in parts], one.stream


def _by_stream(states: Iterable[Found]) -> dict[str, dict[str, Found]]:
    table: dict[str, dict[str, Found]] = defaultdict(dict)
    for one in states:
        table[one.stream][one.owner] = one
    return table


def _findings(states: list[Found], size: int) -> Iterator[str]:
    owners = list(dict.fromkeys(one.owner for one in states))
    streams: dict[str, list[str]] = defaultdict(list)  # with the same finding
    for stream, held in _by_stream(states).items():
        groups: dict[GeneratorState, list[str]] = defaultdict(list)
        for owner, one in held.items():
            groups[one.state].append(owner)
        for names in groups.values():
            if len(names) > 1:
                text = f"{_listed(names)} have one state and draw the same random numbers"
                streams[text].append(stream)
        missing = [owner for owner in owners if owner not in held]
        if missing and "" not in owners:
            streams[f"{_listed(missing)} without a state, which {_listed(held)} has"].append(stream)
    yield from (f"{_listed(names)}: {text}" for text, names in streams.items())
    if 0 < len(owners) < size:
        text = f"{size} ranks: right only for streams that these ranks share"
        yield f"it holds the states of {len(owners)} rank{'s' * (len(owners) > 1)} for {text}"


def _listed(names: Iterable[str]) -> str:
    held = list(names)
    more = f" and {len(held) - _NAMES} more" if len(held) > _NAMES else ""
    return ", ".join(name or "all ranks" for name in held[:_NAMES]) + more


def compare_states(a: Inspection, b: Inspection) -> list[Difference]:
    """Return the streams that differ, in the order of ``a`` and then of ``b``."""
    mine, other = ({(one.owner, one.stream): one for one in side.states} for side in (a, b))
    found = []
    for key in dict.fromkeys([*mine, *other]):
        before, after = mine.get(key), other.get(key)
        name = f"{key[0] or 'all ranks'} {key[1]}"
        if before is None or after is None:
            where = "the first" if after is None else "the second"
            found.append(Difference(name, before, after, f"only in {where}"))
        elif before.state != after.state:
            found.append(Difference(name, before, after, _difference(a, before, after.state)))
    return found


def _difference(a: Inspection, before: Found, after: GeneratorState) -> str:
    """Return how a state differs; only torch's states hold their seed."""
    for owner, one in _by_stream(a.states)[before.stream].items():
        if one.state == after:
            return f"it has the state of {owner or 'all ranks'}"
    if before.state.text == after.text:
        return "equal but for a cached Gaussian"
    if before.state.seed != after.seed:
        return f"another stream: its seed was {before.state.seed}, and is {after.seed}"
    return "another state" if after.seed is None else "the same seed, another number of draws"


def locate(lineage: Lineage, number: int) -> Point:
    """Return epoch and step of a step that is counted over all epochs, those skipped included."""
    function = "tools.checkpoints.locate"
    left = validation.check_int(function, "number", number, 0, 2**63 - 1)
    for epochs, count in _counts(lineage, 2**32):
        if left < count * len(epochs):
            return epochs.start + left // count, left % count
        left -= count * len(epochs)
    rule = f"a step of the job, which has {number - left} of them"
    raise validation.value_error(function, "number", rule, number)


def _counts(lineage: Lineage, epochs: int) -> Iterator[tuple[range, int]]:
    """Yield ranges of epochs with the number of steps that each has, with those skipped."""
    history = lineage.history._replace(skips=())
    for alike in history.ranges_alike(range(epochs)):
        yield alike, max((span.last for span in history.spans(alike.start)), default=0)


def rows_of(lineage: Lineage, visits: Visits) -> list[dict[str, JSON]]:
    """Return visits as rows for printing, with ``key``, the 128 bits of their random numbers.

    ``source`` and ``index`` are None if the orders of the job are not all mixtures.
    """
    is_mixed = all(spec.sources for spec in lineage.history.orders)
    rows = []
    for visit, (low, high) in zip(visits, lineage.keys(visits).tolist(), strict=True):
        row: dict[str, JSON] = {name: visit[name].item() for name in visits.dtype.names or ()}
        if not is_mixed:
            row |= {"source": None, "index": None}
        rows.append({**row, "key": f"{high << 64 | low:032x}"})
    return rows
