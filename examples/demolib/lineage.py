"""Read the logs of an elastic run, and compare what survived with a run without interruption.

Every start of the workers is an attempt, with a folder that holds a log of each rank. It begins at
the step of a checkpoint that an earlier attempt wrote: its parent. Steps of the parent after that
checkpoint are lost and trained again. What survives is found from the last attempt backwards.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

Part = dict  # of a step, counted from 1: step, epoch, part, samples, images (digest), loss


@dataclass(frozen=True)
class Attempt:
    world_size: int
    pids: list[int]  # by rank
    start: int  # the number of steps that its checkpoint had behind it
    parent: int  # the attempt that wrote its checkpoint; 0: there was none
    parts: dict[tuple[int, int], Part]  # by step and number of the part
    parameters: list[str]  # digests at the end, of the ranks that came to it

    @property
    def step(self) -> int:
        """The step that its first rank is in, or was in when it died."""
        return max((step for step, _ in self.parts), default=self.start)


@dataclass(frozen=True)
class Verdict:
    steps: int  # in the whole run
    repeated_steps: int  # that were lost with an attempt and trained again
    lost: int  # samples that no surviving step trained on
    repeated: int  # samples that surviving steps trained on more than once in an epoch
    reordered: int  # parts with other samples than those of the run without interruption
    different_images: int  # parts whose augmented images differ, lost ones included
    different_losses: int  # parts whose loss differs in any bit, lost ones included
    equal_parameters: bool  # bit for bit, on every rank

    def holds(self) -> bool:
        faults = self.lost, self.repeated, self.reordered
        faults += self.different_images, self.different_losses
        return self.equal_parameters and not any(faults)


def read_attempts(out: Path) -> dict[int, Attempt]:
    """Return the attempts of a run by number, those that have logged anything on rank 0."""
    found = {int(folder.name[8:]): read_attempt(folder) for folder in out.glob("attempt-*")}
    return {number: found[number] for number in sorted(found) if found[number] is not None}


def read_attempt(folder: Path) -> Attempt | None:
    files = sorted(folder.glob("rank-*.jsonl"), key=lambda file: int(file.stem[5:]))
    logs = [[json.loads(line) for line in whole_lines(file)] for file in files]
    if not logs or not all(logs) or len(logs) != logs[0][0]["world_size"]:
        return None
    first = logs[0][0]
    return Attempt(
        first["world_size"],
        [log[0]["pid"] for log in logs],
        first["start"],
        first["parent"],
        {(line["step"], line["part"]): line for log in logs for line in log if "part" in line},
        [line["parameters"] for log in logs for line in log if "parameters" in line],
    )


def whole_lines(file: Path) -> list[str]:
    """Return the lines without the last one if its writer was killed in it."""
    return file.read_text(encoding="utf-8").split("\n")[:-1]


def survivors(attempts: dict[int, Attempt]) -> list[Part]:
    """Return the parts of the steps that led to the last attempt's end, in their order."""
    number, end, found = max(attempts), 1 << 62, []
    while number:
        attempt = attempts[number]
        found += [part for part in attempt.parts.values() if part["step"] <= end]
        number, end = attempt.parent, attempt.start
    return sorted(found, key=lambda part: (part["step"], part["part"]))


def judge(attempts: dict[int, Attempt], reference: Attempt, images: int) -> Verdict:
    """Compare a run with one of a single attempt, in which each epoch has ``images`` samples."""
    kept = survivors(attempts)
    counts = Counter((part["epoch"], sample) for part in kept for sample in part["samples"])
    epochs = {part["epoch"] for part in reference.parts.values()}
    expected = {(epoch, sample) for epoch in epochs for sample in range(images)}
    order = [reference.parts[key]["samples"] for key in sorted(reference.parts)]
    kept_order = [part["samples"] for part in kept]
    trained = [(key, part) for attempt in attempts.values() for key, part in attempt.parts.items()]
    last = attempts[max(attempts)]
    return Verdict(
        steps=reference.step,
        repeated_steps=sum(part == 0 for (_, part), _ in trained) - reference.step,
        lost=len(expected - counts.keys()),
        repeated=sum(counts.values()) - len(counts),
        reordered=sum(a != b for a, b in zip(order, kept_order, strict=False))
        + abs(len(order) - len(kept_order)),
        different_images=differing("images", trained, reference),
        different_losses=differing("loss", trained, reference),
        equal_parameters=len(last.parameters) == last.world_size
        and set(last.parameters) == set(reference.parameters),
    )


def differing(field: str, trained: list, reference: Attempt) -> int:
    return sum(part[field] != reference.parts[key][field] for key, part in trained)
