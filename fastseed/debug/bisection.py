"""Find the first difference between two recorded runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._utils.validation import check_path, value_error
from ..digest.trees import Difference
from .module_calls import CallTensor
from .watch_file import CALLS, GROUPS, Key, Recording, Values, differences, find_files

_SETTING = re.compile(r"optimizer (\d+\.)?group \d+\.(?!params\.)")


class FirstCall(NamedTuple):
    """The first difference among the calls of modules at the first step that differs.

    In ``backward`` it is the gradient of ``tensor`` that differs. ``cause`` is what is known of the
    tensors that the call was given: ``inputs equal``, for example.
    """

    step: int
    direction: str
    tensor: CallTensor
    cause: str

    def __str__(self) -> str:
        module, call, path = self.tensor
        times = f", call {call} (from 0)" if call else ""
        value = f"gradient of {path}" if self.direction == "backward" else path
        cause = self.cause and f"{self.cause}, "
        return f"step {self.step}, {module}, {self.direction}{times}: {cause}{value} differs"


@dataclass(frozen=True)
class Bisection:
    """The first step that differs, and what differs there on the first rank that differs.

    Attributes:
        step: None if all common steps are equal.
        start: whether that step is the state before the first recorded step.
        differences: all differences at that step on that rank, in the order of a training step.
        call: the first difference among the calls of modules; None without ``modules=True``.
        compared, differing: the numbers of common steps, and of those that differ on any rank.
        notes: other differences: steps, ranks, intervals that only one run has, incomplete files.
    """

    step: int | None
    start: bool
    rank: int | None
    differences: tuple[Difference, ...]
    call: FirstCall | None
    compared: int
    differing: int
    notes: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """True if all common steps are equal."""
        return self.step is None

    @property
    def first(self) -> Difference | None:
        """The first difference."""
        return self.differences[0] if self.differences else None

    def __str__(self) -> str:
        if self.step is None:
            return f"all {self.compared} common steps are equal"
        where = f"step {self.step}" + (" (before the first recorded one)" if self.start else "")
        call = f"; {self.call}" if self.call else ""
        rest = len(self.differences) - 1
        more = f"; and {rest} more at this step" if rest else ""
        return f"the first difference is at {where}, rank {self.rank}: {self.first}{call}{more}"


def bisect(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Bisection:
    """Find the first step and tensor in which two runs differ by a bit.

    Args:
        a: the folder of a run that ``fastseed.debug.Watch`` recorded, or one of its files.
        b: the same of the other run. Runs of several ranks are compared rank by rank.

    Raises:
        OSError: a file cannot be read.
        TypeError, ValueError: no path, or one that does not exist; a folder without such files; a
            damaged file; runs without a common step or rank.

    Examples:
        >>> import tempfile, torch, fastseed
        >>> folders = [tempfile.mkdtemp(), tempfile.mkdtemp()]
        >>> for i, folder in enumerate(folders):
        ...     fastseed.init(42)
        ...     model = torch.nn.Linear(2, 2)
        ...     with fastseed.debug.Watch(model, path=folder) as watch:
        ...         model.bias.data[0] += i
        ...         recorded = watch.record()
        >>> found = fastseed.debug.bisect(*folders)
        >>> found.step, found.first.name
        (0, 'parameter bias')
    """
    one, other = (recordings("debug.bisect", *side) for side in (("a", a), ("b", b)))
    common = sorted(one.keys() & other.keys())
    if not common:
        raise ValueError(
            "fastseed.debug.bisect: a and b must have a rank in common, got "
            f"{_numbers(one)} of {str(a)!r} and {_numbers(other)} of {str(b)!r}"
        )
    only = (("a", one.keys() - other.keys()), ("b", other.keys() - one.keys()))
    notes = [f"only {which} has ranks {_numbers(ranks)}" for which, ranks in only if ranks]
    compared: set[int] = set()
    differing: set[tuple[int, int]] = set()  # step and rank
    unused: set[str] = set()
    for rank in common:
        sides = one[rank], other[rank]
        notes += _notes(*sides, f"rank {rank}: " if len(common) > 1 else "")
        steps = sides[0].steps.keys() & sides[1].steps.keys()
        compared |= steps
        differing |= {(step, rank) for step in steps if any(_differing(*sides, step, unused))}
    if not compared:
        raise ValueError(
            f"fastseed.debug.bisect: a and b must have a step in common, got {a!s} and {b!s}"
        )
    step, rank = min(differing, default=(-1, common[0]))
    runs = one[rank], other[rank]
    changes_nothing = "differs where nothing draws from it, which changes nothing"
    notes += [f"{name} {changes_nothing}" for name in sorted(unused)]
    if not differing:
        return Bisection(None, False, None, (), None, len(compared), 0, tuple(notes))
    left, right = (run.values(step).by_name() for run in runs)
    found = differences(left, right, {*_differing(*runs, step, unused)})
    start = any(run.values(step).start for run in runs)
    call = _first_call(runs[0], step, found)
    if call is None and not start:
        notes += _note_of_calls(runs, step)
    count = len({step for step, _ in differing})
    return Bisection(step, start, rank, tuple(found), call, len(compared), count, tuple(notes))


def _note_of_calls(runs: tuple[Recording, Recording], step: int) -> list[str]:
    if not all(set(CALLS) & set(run.header["groups"]) for run in runs):
        return []
    has_calls = any(one.group in CALLS for run in runs for one in run.values(step).entries)
    said = "all calls of modules are equal" if has_calls else "no call of a module was recorded"
    if any(CALLS[1] not in run.header["groups"] for run in runs):  # without modules=
        said = "the batches are equal" if has_calls else "no batch was recorded"
    return [f"{said} at step {step}"]


def recordings(function: str, argument: str, given: str | os.PathLike[str]) -> dict[int, Recording]:
    path = Path(check_path(function, argument, given))
    rule = "a folder with recordings of fastseed.debug.Watch, or one of its files"
    if not path.exists():
        raise value_error(function, argument, f"{rule}, that exists", str(path))
    files = find_files(path) if path.is_dir() else [path]
    if not files:
        raise value_error(function, argument, rule, str(path))
    return {one.header["rank"]: one for one in map(Recording, files)}


def _notes(a: Recording, b: Recording, where: str) -> list[str]:
    notes = []
    for which, one, other in (("a", a, b), ("b", b, a)):
        only = one.steps.keys() - other.steps.keys()
        if only:
            notes.append(f"only {which} has steps {_numbers(only)}")
        if one.incomplete:
            notes.append(f"the last record of {which} is incomplete")
        for group in GROUPS:
            if group in one.header["groups"] and group not in other.header["groups"]:
                notes.append(f"only {which} recorded the {group}")
    for name in ("every", "world_size", "torch", "threads"):
        if a.header.get(name) != b.header.get(name):
            notes.append(f"{name} is {a.header.get(name)} in a and {b.header.get(name)} in b")
    return [where + note for note in notes]


def _numbers(values: Iterable[int]) -> str:
    """Return numbers in words: ``3 to 5``, or ``2 of 3 to 5``."""
    found = set(values)
    low, high = min(found), max(found)
    if low == high:
        return str(low)
    return f"{low} to {high}" if len(found) > high - low else f"{len(found)} of {low} to {high}"


def _differing(a: Recording, b: Recording, step: int, unused: set[str]) -> Iterator[Key]:
    """Yield what differs at a step; generators that only differ unused are added to ``unused``."""
    one, other = a.values(step), b.values(step)
    groups = set(a.header["groups"]) & set(b.header["groups"])
    if one.start or other.start:  # there was no step yet, and generators may be reseeded
        groups -= {"gradient", "generator", *CALLS}
    keys = [key for key in _changed(one, other) if key[0] in groups]
    if one.start != other.start:  # a schedule may have run between the two
        keys = [key for key in keys if not _SETTING.match(" ".join(key))]
    yield from (key for key in keys if key[0] != "generator")
    for key in (key for key in keys if key[0] == "generator"):
        if _is_used(a, step, key) or _is_used(b, step, key):
            yield key
        else:
            unused.add(" ".join(key))


def _changed(a: Values, b: Values) -> list[Key]:
    """Return what differs; tables are built only if runs do not record the same tensors."""
    if a.entries == b.entries:
        rows = (np.frombuffer(side.digests.encode(), "S32") for side in (a, b))
        return [a.entries[i][:2] for i in np.flatnonzero(np.not_equal(*rows))]
    left, right = a.by_name(), b.by_name()
    return [key for key in left | right if left.get(key) != right.get(key)]


def _is_used(recording: Recording, step: int, key: Key) -> bool:
    before = recording.previous.get(step)
    if before is None:
        return True
    now, then = recording.values(step), recording.values(before)
    return now.digest_of(key) != then.digest_of(key)


def _first_call(a: Recording, step: int, differences: list[Difference]) -> FirstCall | None:
    found = next((d for d in differences if d.name.partition(" ")[0] in CALLS), None)
    if found is None:
        return None
    direction, _, name = found.name.partition(" ")
    tensor = CallTensor.parse(name)
    source, kind = "output", "gradients of outputs"
    if direction == "forward":
        source, kind = "input", "inputs"
    begins = f"{direction} {tensor.module} #{tensor.call} {source}"
    names = (f"{e.group} {e.name}" for e in a.values(step).entries)
    given = {name for name in names if name.startswith(begins)}
    cause = ""
    if found.a is None or found.b is None:
        cause = f"only {'b' if found.a is None else 'a'} has it"
    elif found.name.startswith(begins):
        cause = "nothing before it differs"
    elif given and not given & {d.name for d in differences}:
        cause = f"{kind} equal"
    return FirstCall(step, direction, tensor, cause)
