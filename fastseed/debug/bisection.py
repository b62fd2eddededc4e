"""Where two recorded runs part."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .watch_file import FOLDER, GROUPS, Entry, Recording, Values


class Side(NamedTuple):
    """A tensor, or a plain value, as one of the runs had it."""

    dtype: str
    shape: tuple[int, ...]
    value: int

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} {self.value:032x}"


class Parting(NamedTuple):
    """Something in which two runs differ at a step; a side is None where its run has no such."""

    group: str
    """``generator``, ``buffer``, ``gradient``, ``optimizer`` or ``parameter``."""
    name: str
    a: Side | None
    b: Side | None

    def __str__(self) -> str:
        sides = ("absent" if side is None else str(side) for side in (self.a, self.b))
        return f"{self.group} {self.name}: {' | '.join(sides)}"


@dataclass(frozen=True)
class Bisection:
    """What two recorded runs have in common, and where they part.

    Attributes:
        step: the first step that differs; None where none does.
        start: whether that is what was there before the first step that was recorded.
        rank: the first rank that differs at it.
        differences: all that differs at that step on that rank, in the order in which a training
            step makes it: generators, buffers, gradients from the last layer on, the optimizer,
            parameters.
        compared: how many steps both have.
        differing: in how many of these something differs, on any rank.
        notes: what else differs: steps, ranks, intervals that only one run has, files cut off.
    """

    step: int | None
    start: bool
    rank: int | None
    differences: tuple[Parting, ...]
    compared: int
    differing: int
    notes: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether nothing differs in what both have recorded."""
        return self.step is None

    @property
    def first(self) -> Parting | None:
        """The first difference."""
        return self.differences[0] if self.differences else None

    def __str__(self) -> str:
        if self.step is None:
            return f"equal in all {self.compared} steps that both have"
        where = f"step {self.step}" + (" (before the first one recorded)" if self.start else "")
        more = len(self.differences) - 1
        return f"the runs part at {where}, rank {self.rank}: {self.first}" + (
            f"; and {more} more at this step" if more else ""
        )


def bisect(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Bisection:
    """Find the first step and tensor in which two runs, recorded by :class:`fastseed.debug.Watch`, part.

    Args:
        a: the folder of a run, or one of its files.
        b: the same of the other run. Runs of several ranks are compared rank by rank.

    Raises:
        OSError: a file cannot be read.
        ValueError: a folder holds no such files, a file is none or is damaged, or the two have no
            step or no rank in common. A file whose last record was cut off, by a crash, is read up
            to there.
    """
    pairs, notes = _pairs(Path(a), Path(b))
    found: tuple[int, int, bool, tuple[Parting, ...]] | None = None
    compared: set[int] = set()
    differing: set[int] = set()
    idle: set[str] = set()
    for rank, left, right in pairs:
        notes += _notes(left, right, f"rank {rank}: " if len(pairs) > 1 else "")
        for step in sorted(left.steps.keys() & right.steps.keys()):
            compared.add(step)
            one, other = left.values(step), right.values(step)
            partings = _differences(one, other, _groups(left, right, one, other))
            still = {p.name for p in partings if p.group == "generator"}
            still -= _drawn(left, step, still) | _drawn(right, step, still)
            idle |= still
            partings = tuple(p for p in partings if p.group != "generator" or p.name not in still)
            if one.start != other.start:  # a schedule may have its turn between two steps
                partings = tuple(p for p in partings if not _is_setting(p))
            if partings:
                differing.add(step)
                if found is None or step < found[0]:
                    found = step, rank, one.start or other.start, partings
    if not compared:
        raise ValueError(
            f"fastseed.bisect: a and b must have a step in common, got {a!s} and {b!s}"
        )
    notes += [
        f"generator {name} is in another state at some steps, where nothing drew from it"
        for name in sorted(idle)
    ]
    rest = (len(compared), len(differing), tuple(notes))
    if found is None:
        return Bisection(None, False, None, (), *rest)
    step, rank, start, partings = found
    return Bisection(step, start, rank, partings, *rest)


# ---------------------------------------------------------------- files


def _pairs(a: Path, b: Path) -> tuple[list[tuple[int, Recording, Recording]], list[str]]:
    """(rank, a's recording, b's) for each rank of both; what is to be said about the others."""
    if a.is_file() and b.is_file():
        left, right = Recording(a), Recording(b)
        ranks = left.header["rank"], right.header["rank"]
        notes = [f"rank {ranks[0]} of a is compared with rank {ranks[1]} of b"]
        return [(ranks[0], left, right)], notes if ranks[0] != ranks[1] else []
    one, other = _files(a), _files(b)
    common = sorted(one.keys() & other.keys())
    if not common:
        raise ValueError(
            "fastseed.bisect: a and b must have a rank in common, got "
            f"{_numbers(one)} of {str(a)!r} and {_numbers(other)} of {str(b)!r}"
        )
    notes = [
        f"only {which} has ranks {_numbers(ours - theirs)}"
        for which, ours, theirs in (
            ("a", one.keys(), other.keys()),
            ("b", other.keys(), one.keys()),
        )
        if ours - theirs
    ]
    return [(rank, Recording(one[rank]), Recording(other[rank])) for rank in common], notes


def _by_rank(folder: Path) -> dict[int, Path]:
    found = {}
    for file in sorted(folder.iterdir()):
        match = re.fullmatch(r"rank-(\d{1,9})\.watch", file.name)
        if match:
            found[int(match[1])] = file
    return found


def _files(path: Path) -> dict[int, Path]:
    """The files of a run by rank."""
    if path.is_file():
        return {Recording(path).header["rank"]: path}
    found = _by_rank(path)
    if not found and (path / FOLDER).is_dir():
        found = _by_rank(path / FOLDER)  # of a run that was given a folder
    if not found:
        raise ValueError(
            f"fastseed.bisect: {str(path)!r} must hold files of fastseed.Watch, found none"
        )
    return found


def _notes(a: Recording, b: Recording, where: str) -> list[str]:
    """What differs between two recordings beyond the digests of common steps."""
    notes = []
    for which, ours, theirs in (("a", a, b), ("b", b, a)):
        only = ours.steps.keys() - theirs.steps.keys()
        if only:
            notes.append(f"only {which} has steps {_numbers(only)}")
        if ours.cut:
            notes.append(f"{which} was cut off in its last record")
        if ours.twice:
            notes.append(f"{which} recorded steps {_numbers(ours.twice)} again: the last counts")
        for group in GROUPS:
            if group in ours.header["groups"] and group not in theirs.header["groups"]:
                notes.append(f"only {which} watched the {group}")
    for name in ("every", "world_size", "torch"):
        if a.header.get(name) != b.header.get(name):
            notes.append(f"{name} is {a.header.get(name)} in a and {b.header.get(name)} in b")
    return [where + note for note in notes]


def _numbers(values: Iterable[int]) -> str:
    """Numbers in words: ``0, 3-5``."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    shown = [str(low) if low == high else f"{low} to {high}" for low, high in runs[:8]]
    return ", ".join(shown) + (f" and {len(runs) - 8} more" if len(runs) > 8 else "")


# ---------------------------------------------------------------- one step


def _groups(a: Recording, b: Recording, one: Values, other: Values) -> set[str]:
    """What both recorded; at a start there are no gradients, and generators may be reseeded yet."""
    groups = set(a.header["groups"]) & set(b.header["groups"])
    return groups - {"gradient", "generator"} if one.start or other.start else groups


def _drawn(recording: Recording, step: int, names: set[str]) -> set[str]:
    """The generators whose state is not what it was when the step before was recorded."""
    before = max((one for one in recording.steps if one < step), default=None)
    if before is None or not names:
        return names
    now, then = (_by_name(recording.values(one)) for one in (step, before))
    return {name for name in names if now.get(("generator", name)) != then.get(("generator", name))}


_SETTING = re.compile(r"(\d+\.)?group \d+\.(?!params\.)")


def _is_setting(parting: Parting) -> bool:
    """Whether it is one of an optimizer's settings, as the learning rate is."""
    return parting.group == "optimizer" and _SETTING.match(parting.name) is not None


def _differences(a: Values, b: Values, groups: set[str]) -> tuple[Parting, ...]:
    if a.entries == b.entries and a.digests == b.digests:
        return ()
    left, right = _by_name(a), _by_name(b)
    order = {name: i for i, name in enumerate([*left, *(n for n in right if n not in left)])}
    found = [
        Parting(*name, left.get(name), right.get(name))
        for name in order
        if name[0] in groups and left.get(name) != right.get(name)
    ]
    found.sort(key=lambda p: (GROUPS.index(p.group), order[p.group, p.name]))
    return tuple(found)


def _by_name(values: Values) -> dict[tuple[str, str], Side]:
    def side(entry: Entry, value: int) -> Side:
        return Side(entry.dtype, entry.shape, value)

    return {(entry.group, entry.name): side(entry, value) for entry, value in values.items()}
