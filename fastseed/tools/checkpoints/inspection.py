"""Read all states of a checkpoint, and find what is wrong: shared, missing and unreadable ones."""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...debug.difference import Difference
from ...debug.exact_state import MAX_WORDS, GeneratorState, words_between
from .folders import noted, parts_of
from .states import Found, states_in, world_size_in

_NAMES = 6  # in a list
_MAX_STATES = 100_000  # of all files
_NEAR = 100_000  # words within which two ranks are said to be on one stream


@dataclass(frozen=True)
class Inspection:
    """The states of generators in a checkpoint. It is true if there is no finding.

    Attributes:
        path: the checkpoint.
        states: every state that was found, by owner and stream.
        findings: what is wrong: ranks that draw the same numbers, streams that some ranks lack,
            fewer states than ranks, files and states that are damaged or could not be read.
        problems: those findings that are damage, or files that could not be read.
    """

    path: str
    states: tuple[Found, ...]
    findings: tuple[str, ...]
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.findings

    def same_as(self, one: Found) -> list[str]:
        """Return the other ranks that have this state."""
        held = self.by_stream()[one.stream].items()
        return [owner for owner, o in held if o.state == one.state and owner != one.owner]

    def by_stream(self) -> dict[str, dict[str, Found]]:
        """Return the states of each stream by owner."""
        table: dict[str, dict[str, Found]] = {}
        for one in self.states:
            table.setdefault(one.stream, {})[one.owner] = one
        return table


def read(function: str, argument: str, path: str) -> Inspection:
    """Return what ``path`` holds; ValueError if nothing in it can be read."""
    states: list[Found] = []
    problems: list[str] = []
    size, count = 0, 0
    writers: set[int] = set()
    if not os.path.exists(path):
        raise FileNotFoundError(f"fastseed.{function}: {argument} must exist, got {path!r}")
    for part in parts_of(path, problems):
        before = len(states)
        with noted(part.source, problems):
            states += states_in(part, problems)
            count += 1
        if len(states) > _MAX_STATES:
            del states[before:]
            problems.append(f"{part.source} and what follows are not read: too many states")
            break
        size = max(size, world_size_in(part) or 0)
        writers |= set() if part.writer is None else {part.writer}
    if not count:
        why = "; ".join(problems[:_NAMES]) or "it has no file of a checkpoint"
        rule = "a checkpoint that can be read"
        raise ValueError(f"fastseed.{function}: {argument} must be {rule}, got {path!r} ({why})")
    whole = Inspection(path, tuple(sorted(_distinct(states), key=_order)), ())
    findings = [*_findings(whole, max(size, len(writers))), *problems]
    return Inspection(path, whole.states, tuple(findings), tuple(problems))


def _distinct(states: list[Found]) -> Iterator[Found]:
    """Give states of one owner and stream names of their own, by keys, file or numbers."""
    files: dict[str, set[str]] = defaultdict(set)
    for one in states:
        files[one.owner].add(one.source.partition(": ")[0])
    count = Counter((one.owner, one.stream) for one in states)
    used: set[tuple[str, str]] = set()
    for one in states:
        file, _, keys = one.source.partition(": ")
        if count[one.owner, one.stream] > 1:  # the only file of a checkpoint is not named
            where = one.source if len(files[one.owner]) > 1 else keys or file
            one = one._replace(stream=f"{one.stream} in {where}")
        name, numbers = one.stream, itertools.count(2)
        while (one.owner, one.stream) in used:
            one = one._replace(stream=f"{name} ({next(numbers)})")
        used.add((one.owner, one.stream))
        yield one


def _order(one: Found) -> tuple[object, ...]:
    """Sort by owner, numbers by value, and stream."""
    words = one.owner.split()
    numbers = [int(w) if w.isdecimal() and len(w) < 10 else -1 for w in words]
    return [(n < 0, n, w) for n, w in zip(numbers, words, strict=True)], one.stream


# ---------------------------------------------------------------- findings


def _findings(whole: Inspection, size: int) -> Iterator[str]:
    if not whole.states:
        yield "it holds no state of a generator: a job that resumes from it draws other numbers"
        return
    owners = list(dict.fromkeys(one.owner for one in whole.states))
    streams: dict[str, list[str]] = defaultdict(list)  # with the same finding
    for stream, held in whole.by_stream().items():
        for text in _shared(held):
            streams[text].append(stream)
        missing = [owner for owner in owners if owner not in held]
        if missing and "" not in owners:
            streams[f"{_listed(missing)} without a state, which {_listed(held)} has"].append(stream)
    yield from (f"{_listed(names)}: {text}" for text, names in streams.items())
    if len(owners) < size:
        writers = {one.writer for one in whole.states if one.writer is not None and not one.owner}
        of = f", written by {_listed(f'rank {w}' for w in sorted(writers))}" if writers else ""
        held_by = "1 rank" if len(owners) == 1 else f"{len(owners)} ranks"
        yield (
            f"it holds the states of {held_by} for {size} ranks{of}: right only for streams that "
            "these ranks share"
        )


def _shared(held: dict[str, Found]) -> Iterator[str]:
    """Yield the ranks that have one state, and those that are on one stream.

    A state with a seed is compared with the first one of that seed, others with the first one.
    """
    groups: dict[GeneratorState, list[str]] = defaultdict(list)
    for owner, one in held.items():
        groups[one.state].append(owner)
    for names in groups.values():
        if len(names) > 1:
            yield f"{_listed(names)} have one state and draw the same random numbers"
    bases: dict[int | None, GeneratorState] = {}
    for state in groups:
        first = bases.setdefault(state.seed, state)
        words = None if first is state else words_between(first, state, _NEAR)
        if words is not None:
            ahead, behind = (first, state) if words < 0 else (state, first)
            yield (
                f"{_listed(groups[ahead])} on the stream of {_listed(groups[behind])}, "
                f"{abs(words)} words further"
            )


def _listed(names: Iterable[str]) -> str:
    held = list(names)
    more = f" and {len(held) - _NAMES} more" if len(held) > _NAMES else ""
    return ", ".join(name or "all ranks" for name in held[:_NAMES]) + more


# ---------------------------------------------------------------- two checkpoints

_LOADER = "as one `iter(DataLoader)` draws"
_SHUFFLING = "as one `iter(DataLoader(shuffle=True))` draws, or two without shuffling"
_HINTS = {2: _LOADER, 4: _SHUFFLING}
"""Words of torch's generator on the CPU. A DataLoader without a generator of its own draws a base
seed of 64 bits when it is iterated, and its RandomSampler another."""


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
    words = words_between(before.state, after)
    if words == 0:
        return "equal but for a cached Gaussian, half a word, or the form in which it is stored"
    if words is not None:
        hint = _HINTS.get(abs(words)) if before.stream.startswith("torch.cpu") else None
        return _count(words) + (f", {hint}" if hint else "")
    text = next(_others(a, before, after), "")
    if not text and before.state.seed != after.seed:
        text = f"another stream: its seed was {before.state.seed}, and is {after.seed}"
    return text or f"another stream, or more than {MAX_WORDS} words apart"


def _count(words: int) -> str:
    if words == 0:
        return "in the same state"
    noun, where = ("word" if abs(words) == 1 else "words"), ("further" if words > 0 else "behind")
    return f"{abs(words)} {noun} {where}"


def _others(a: Inspection, before: Found, after: GeneratorState) -> Iterator[str]:
    """Yield the other ranks of the first checkpoint whose stream this is."""
    for owner, one in a.by_stream()[before.stream].items():
        words = words_between(one.state, after, 0) if owner != before.owner else None
        if words is not None:
            yield f"it has the stream of {owner or 'all ranks'}, {_count(words)}"
