"""What the seed reaches: the parts that runs with several seeds printed and recorded."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

from ...debug.module_calls import ROOT
from ...debug.reach import Seen, judge
from ...debug.watch_file import Values
from ...digest.trees import whole
from .comparison import is_same_line, recordings
from .report import Check, Report
from .runs import OTHER, WHOLE, Run

_INPUT = re.compile(rf"{re.escape(ROOT)} #\d+ input")


def with_reach(report: Report, seeds: Sequence[int], allow: Mapping[str, str]) -> Report:
    """Return a report with the verdicts about the runs of these seeds."""
    again = [run for run in report.runs if run.experiment == WHOLE]
    runs = [again[0], *(run for run in report.runs if run.experiment == OTHER)]
    found = [_parts(run, seed, runs[0], seeds[0]) for run, seed in zip(runs, seeds, strict=True)]
    reach = judge(found, _parts(again[-1], seeds[0], runs[0], seeds[0]), seeds, allow)
    wrong = [f"{row.leaf} is {row.verdict}" for row in reach.rows if not row.ok]
    message = "; ".join(wrong) or f"{len(reach.rows)} part(s), all good or allowed"
    check = Check("reach", "every part follows the seed", bool(reach), message)
    # Instead of the check that every other run differs from the first one.
    checks = (*(one for one in report.checks if one.name != "seed"), check)
    notes = report.notes
    if not any(name.endswith("batches") for name in found[0]):
        notes += ("no batch was recorded; fastseed.debug.Watch(model) does that",)
    return dataclasses.replace(report, checks=checks, notes=notes, reach=reach.rows)


def _parts(run: Run, seed: int, first: Run, first_seed: int) -> dict[str, Seen]:
    """Return what a run printed, its losses if it has any, and what each rank recorded."""
    parts = {"losses": Seen(repr(run.losses.values), is_long=True)}
    if not first.losses.values:
        pairs = itertools.zip_longest(run.lines, first.lines, fillvalue="")
        same = (b if is_same_line(a, b, (seed, first_seed)) else a for a, b in pairs)
        parts = {"output": Seen(tuple(same), is_long=True)}
    for one in [] if run.recording is None else recordings(run):
        rank = f"rank{one.header['rank']}." if one.header["world_size"] > 1 else ""
        steps = [one.values(step) for step in sorted(one.steps)]
        batches = [digest for step in steps if (digest := _digest(step, "forward"))]
        if batches:
            parts[f"{rank}batches"] = Seen(tuple(batches), batches, is_long=True)
        for name, step in (("first weights", steps[0]), ("last weights", steps[-1])):
            if digest := _digest(step, "parameter"):
                parts[f"{rank}{name}"] = Seen(digest, is_long=True)
    return parts


def _digest(step: Values, wanted: str) -> bytes:
    """Return a digest of all parameters, or of what the model was called with; empty if none."""
    leaves = {
        name: leaf
        for (group, name), leaf in step.by_name().items()
        if group == wanted and (wanted == "parameter" or _INPUT.match(name))
    }
    return whole(leaves).to_bytes(16, "little") if leaves else b""
