"""Compare the output, the losses and the recordings of runs, to the last bit; also of ranks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...debug import bisection
from ...debug.watch_file import STATE, Recording, Table, differences, weights_of
from ..logs import same
from .processes import ERR
from .runs import OTHER, WHOLE, Run, printed

_NUMBER = re.compile(r"(\d+(?:\.\d+)*)")
_SHOWN = 200  # characters of a line
_FEW_DIGITS = 8  # one more identifies every float32
_NAMES = 4  # in a list
_GROUPS = STATE[1:]  # generators may differ between ranks


def compare_whole(a: Run, b: Run) -> str | None:
    """Return the first difference of two whole runs in a sentence; None if they are equal."""
    text = None
    if a.losses.values or b.losses.values:
        text = _compare_losses(a.name, a.losses.values, b)
    elif (n := _common(a.lines, b.lines, (a.seed, b.seed))) < max(len(a.lines), len(b.lines)):
        text = _line_differs(a, b, n)
    return _with_recordings(text, a, b)


def compare_stopped(a: Run, whole: Run) -> str | None:
    """Compare a run that was killed with a whole one, up to there."""
    text = None
    if whole.losses.values:
        common = {step: v for step, v in whole.losses.values.items() if step in a.losses.values}
        text = _compare_losses(a.name, a.losses.values, whole, common)
    elif (count := _common(a.lines, whole.lines)) < len(a.lines):
        text = _line_differs(a, whole, count)
    return _with_recordings(text, whole, a)


def compare_resumed(stopped: Run, rest: Run, whole: Run) -> str | None:
    """Compare a run that stopped, and the one that continued it, with a whole one."""
    name = f"{stopped.name} with {rest.name}"
    text = None
    if whole.losses.values:
        again = rest.losses.values
        before = {step: one for step, one in stopped.losses.values.items() if step not in again}
        text = _compare_losses(name, {**before, **again}, whole)
    else:  # the second may print others at its beginning, such as the step at which it resumes
        begin = _common(stopped.lines, whole.lines)
        end = _common(rest.lines[::-1], whole.lines[::-1])
        between = range(begin, len(whole.lines) - end)
        if between:
            held = set(rest.lines)
            at = next((i for i in between if whole.lines[i] not in held), between[-1])
            line = whole.lines[at][:_SHOWN]
            text = f"line {at + 1} of {whole.name} is not in {name}: {line!r}"
    return _with_recordings(text, whole, rest)


def began_anew(rest: Run, whole: Run, value: str) -> bool:
    """Return whether a run that was started again did the whole once more, and resumed nothing."""
    if whole.recording and _first_step(rest) == _first_step(whole):
        return True
    steps = whole.losses.values
    if any(step in rest.losses.values for step in [*steps][:1]):
        return True
    losses, again = ([*printed(run.lines, value).values()] for run in (whole, rest))
    if losses and len(again) >= len(losses) and losses[0] == again[0]:
        return True
    every = len(whole.lines)  # a log that is written anew looks like one that is continued
    return every >= max(1, len(steps)) and _common(rest.lines[::-1], whole.lines[::-1]) == every


def _first_step(run: Run) -> int | None:
    found = recordings(run) if run.recording else []
    return min((step for one in found for step in one.steps), default=None)


def is_same_line(a: str, b: str, seeds: tuple[int, int]) -> bool:
    """Return whether two lines are equal, but for numbers that are the seeds of their runs."""
    words = itertools.zip_longest(_NUMBER.split(a), _NUMBER.split(b))
    pair = tuple(map(str, seeds))
    return a == b or all(one == other or (one, other) == pair for one, other in words)


def _common(a: Sequence[str], b: Sequence[str], seeds: tuple[int, int] = (0, 0)) -> int:
    pairs = zip(a, b, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: is_same_line(*pair, seeds), pairs))


def _line_differs(a: Run, b: Run, count: int) -> str:
    lines = (one.lines[count : count + 1] for one in (a, b))
    shown = (repr(line[0][:_SHOWN]) if line else "the output has ended" for line in lines)
    return f"line {count + 1} of {a.name} and {b.name}: {' and '.join(shown)}"


def _compare_losses(
    name: str, a: dict[str, float], run: Run, expected: dict[str, float] | None = None
) -> str | None:
    """Return the first difference from the losses of a run, or from ``expected`` ones of it."""
    b = run.losses.values if expected is None else expected
    wrong = [step for step in {**b, **a} if not same(a.get(step), b.get(step))]
    if not wrong:
        return None
    values = [repr(one[wrong[0]]) if wrong[0] in one else "no loss" for one in (a, b)]
    return (
        f"first difference between {name} and {run.name} at step {wrong[0]}: "
        f"{' and '.join(values)} ({len(wrong)} of {len({**a, **b})} steps differ)"
    )


def _with_recordings(text: str | None, a: Run, b: Run) -> str | None:
    if a.recording is None or b.recording is None:
        only = [one.name for one in (a, b) if one.recording is not None]
        return text or (f"only {only[0]} recorded" if only and not b.killed else None)
    try:
        found = bisection.bisect(a.recording, b.recording)
    except ValueError:  # no common step; also of a run that was killed before its header
        return text
    if found.equal:
        return text
    return f"{f'{text}; ' if text else ''}recordings of {a.name} and {b.name}: {found}"


def notes_about(runs: Sequence[Run]) -> Iterator[str]:
    """Yield remarks about the logs, and about files that runs share."""
    values = [value for run in runs for value in run.losses.values.values()]
    if values and all(float(f"{v:.{_FEW_DIGITS}g}") == v or v != v for v in values):
        yield (
            f"losses have at most {_FEW_DIGITS} significant digits, so only these are compared; "
            "write them with repr() or as JSON"
        )
    whole = [run for run in runs if run.experiment in (WHOLE, OTHER)]  # others repeat steps
    left_out = max((run.losses.left_out for run in whole), default=0)
    if left_out and values:
        yield f"up to {left_out} lines of a log are broken, have no step or repeat one"
    if wrote := [run.name for run in whole if (run.folder / ERR).stat().st_size]:
        yield f"standard error, as {wrote[0]} wrote it, is not compared"
    names = sorted({name for run in runs for name in run.written})
    if names and not any(str(run.place) in " ".join(run.command) for run in runs):
        shown = ", ".join(names[:_NAMES]) + ", ..." * (len(names) > _NAMES)
        yield (
            f"the runs share the working folder, in which they wrote {shown}: a run may continue "
            "an earlier one's checkpoint; give the program {run}, an empty folder for each run"
        )


class RankRun(NamedTuple):
    ranks: int
    steps: int  # that were recorded, without the state before the first
    digest: str  # of parameters and buffers after the last step, as debug.digest(model) has it
    difference: str | None  # the first one from the first run, or between ranks of this run


def compare_ranks(runs: Sequence[Run]) -> tuple[list[RankRun], list[str]]:
    """Compare runs, whose numbers are their numbers of ranks, with the first; and notes."""
    recorded = {_ranks(run.number): recordings(run) for run in runs}
    first, found = next(iter(recorded)), []
    for run, (name, held) in zip(runs, recorded.items(), strict=True):
        last, _ = _merged(held, max(step for one in held for step in one.steps))
        trained = sum(not held[0].values(step).start for step in held[0].steps)
        difference = next(_differences((first, name), (recorded[first], held)), None)
        found.append(RankRun(run.number, trained, weights_of(last), difference))
    return found, [*_notes_on_ranks(recorded)]


def recordings(run: Run) -> list[Recording]:
    if run.recording is None:
        rule = "a script that records with fastseed.debug.Watch(model, optimizer).attach()"
        got = f"no recording in FASTSEED_RUN_DIR with {_ranks(run.number)}"
        raise ValueError(f"fastseed.verify: command must be {rule}, got {got}")
    found = bisection.recordings("verify", "command", run.recording)
    return [found[rank] for rank in sorted(found)]


def _differences(
    names: tuple[str, str], runs: tuple[list[Recording], list[Recording]]
) -> Iterator[str]:
    first, other = runs
    every = [{step for one in run for step in one.steps} for run in runs]
    for step in sorted(every[0] | every[1]):
        for name, steps in zip(names, every, strict=True):
            if step not in steps:
                yield f"step {step}: not recorded with {name}"
        left, _ = _merged(first, step)
        right, conflict = _merged(other, step)
        start = any(one.values(step).start for one in other if step in one.steps)
        where = "before the first step" if start else f"step {step}"
        if conflict is not None:
            yield f"{where}: {conflict}"
        for name, one, two, _ in differences(left, right):
            found = f"{one or 'absent'} with {names[0]}, {two or 'absent'} with {names[1]}"
            yield f"{where}, {name}: {found}"


def _merged(run: list[Recording], step: int) -> tuple[Table, str | None]:
    found: Table = {}
    conflict = None
    for one in run:
        values = one.values(step).by_name() if step in one.steps else {}
        for (group, name), leaf in values.items():
            if group not in _GROUPS:
                continue
            if found.setdefault((group, name), leaf) != leaf and conflict is None:
                rank = one.header["rank"]
                conflict = f"{group} {name} differs between ranks of one run, first on rank {rank}"
    return found, conflict


def _notes_on_ranks(recorded: dict[str, list[Recording]]) -> Iterator[str]:
    for name in ("threads", "torch"):
        found = {
            ranks: ", ".join(sorted({str(one.header.get(name)) for one in run}))
            for ranks, run in recorded.items()
        }
        if len({*found.values()}) > 1:
            listed = (f"{values} with {ranks}" for ranks, values in found.items())
            yield f"{name} differ: {'; '.join(listed)}"


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"
