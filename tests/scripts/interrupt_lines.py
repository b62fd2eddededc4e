"""Interrupt calls of the library at random lines, and report what was left behind.

    python tests/scripts/interrupt_lines.py SEED COUNT

Each attempt raises KeyboardInterrupt at one line event of the library's own frames, chosen by the
seed. The last line of an ``__enter__`` and the first of an ``__exit__`` are left out, as nothing
can be promised between a ``with`` statement and its block; so is the event at a ``with`` line when
its block has ended, where a tracer can raise and the interpreter runs no handler. Afterwards no
lock may be held, a ledger opens again with every unit, torch's operators run as before, and the
next ``reseed`` gives the state of a clean run. Prints one line of JSON: the attempts by subject,
and the problems.
"""

from __future__ import annotations

import gc
import json
import linecache
import logging
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import torch

import fastseed

PACKAGE = str(Path(fastseed.__file__).parent)
SPECIAL = ("__enter__", "__exit__", "__del__")


class Lines:
    """Counts the line events of a call in the library, and raises at one of them."""

    def __init__(self, at: int = -1) -> None:
        self.count, self.at, self.where = 0, at, ""
        self._edges: dict[CodeType, tuple[int, int]] = {}
        self._last: dict[Any, int] = {}  # the line before, of each frame

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or self._finalizes(frame):
            return None if event == "call" else self
        before, self._last[frame] = self._last.get(frame, 0), frame.f_lineno
        leaves = before > frame.f_lineno and _is_with(code.co_filename, frame.f_lineno)
        if event == "return":
            self._last.pop(frame)
        if event == "line" and not leaves and not self._is_edge(frame):
            if self.count == self.at:
                self.where = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
                self.count += 1
                raise KeyboardInterrupt
            self.count += 1
        return self

    def _is_edge(self, frame: Any) -> bool:
        code = frame.f_code
        if code.co_name not in SPECIAL:
            return False
        if code not in self._edges:
            lines = [line for _, _, line in code.co_lines() if line is not None]
            lines = [line for line in lines if line > code.co_firstlineno]
            self._edges[code] = min(lines, default=0), max(lines, default=0)
        first, last = self._edges[code]
        return frame.f_lineno in (first, last)

    @staticmethod
    def _finalizes(frame: Any) -> bool:
        while frame is not None:
            if frame.f_code.co_name == "__del__":
                return True
            frame = frame.f_back
        return False


def _is_with(file: str, line: int) -> bool:
    """Return whether a ``with`` statement begins in this line."""
    return linecache.getline(file, line).lstrip().startswith("with ")


def interrupt(subject: Callable[[Path], Any], folder: Path, at: int = -1) -> Lines:
    """Call a subject, interrupted at a line event; with -1 count them."""
    lines = Lines(at)
    sys.settrace(lines)
    try:
        subject(folder)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return lines


# ---------------------------------------------------------------- the subjects


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))


def reseed(folder: Path) -> None:
    fastseed.reseed(1, 3, 7)


def fork_rng(folder: Path) -> None:
    with fastseed.fork_rng("a", index=1):
        torch.rand(2)
        with fastseed.fork_rng("b"):
            torch.rand(2)


def initialize(folder: Path) -> None:
    made = model()
    with fastseed.nn.initialize(made):
        for part in (made[0], made[2]):
            part.reset_parameters()


def construct(folder: Path) -> None:
    fastseed.nn.construct(model)


def task_block(folder: Path) -> None:
    with fastseed.integrations.run_in_task(2):
        torch.rand(2)


def open_ledger(folder: Path) -> Any:
    where = {"results": folder / "results", "master_seed": 1}
    return fastseed.rollouts.Ledger(40, batch_size=2, samples=2, window=2, lag=1, **where)


def ledger(folder: Path) -> None:
    opened = open_ledger(folder)
    try:
        for _ in range(2):
            units = opened.lease(6)
            opened.release(units[-1])
            opened.drop(units[-2], "no answer")
            for unit in units[:-2]:
                opened.complete(unit, [unit.position, unit.sample])
            batch = opened.next_batch()
            if batch is not None:
                opened.mark_trained(batch)
            opened.state_dict()
    finally:
        opened.close()


def steps(folder: Path) -> None:
    data = fastseed.data.per_sample(torch.utils.data.TensorDataset(torch.arange(12)))
    loader = torch.utils.data.DataLoader(data, batch_size=3, shuffle=True)
    loop = fastseed.data.steps(loader, epochs=1, task=3)
    for _ in loop:
        loop.state_dict()


SUBJECTS = (reseed, fork_rng, initialize, construct, task_block, ledger, steps)


# ---------------------------------------------------------------- what must hold afterwards


def draws() -> list[float]:
    return [random.random(), float(np.random.random()), float(torch.rand(()))]


def clean() -> list[float]:
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1, 2, 3)
    return draws()


def problems_after(expected: list[float], folder: Path) -> list[str]:
    """Return what is wrong now."""
    found = []
    gc.collect()  # a ledger whose close was interrupted goes with its frame
    result: list[Any] = []

    def run() -> None:
        try:
            fastseed.reseed(1, 2, 3)
            result.append(draws())
        except BaseException as error:
            result.append(repr(error)[:200])

    thread = threading.Thread(target=run, daemon=True)  # a lock that is held stops it
    thread.start()
    thread.join(20)
    if result != [expected]:
        found.append(f"reseed: {result[0] if result else 'a lock is held'}")
    try:
        again = model()
        again(torch.ones(2, 3))
        fastseed.nn.initialize(again)
    except BaseException as error:
        found.append(f"torch: {error!r}"[:200])
    if (folder / "results").exists():
        try:
            opened = open_ledger(folder)
            while not opened.done:  # every unit can still be trained or was dropped
                for unit in opened.lease(16):
                    opened.complete(unit, 1)
                batch = opened.next_batch()
                if batch is not None:
                    opened.mark_trained(batch)
            counts = opened.counts()
            opened.close()
            if counts["trained"] + counts["dropped"] != 80:
                found.append(f"ledger: {counts}")
        except BaseException as error:
            found.append(f"ledger: {error!r}"[:300])
    return found


def main() -> None:
    seed, count = map(int, sys.argv[1:3])
    chance = random.Random(seed)
    logging.disable(logging.WARNING)
    expected = clean()
    made, problems = Counter(), []
    lengths: dict[str, int] = {}
    for _ in range(count):
        subject = chance.choice(SUBJECTS)
        folder = Path(tempfile.mkdtemp())
        fastseed.init(42, rank=0, world_size=1)
        if subject.__name__ not in lengths:
            subject(Path(tempfile.mkdtemp()))  # what it imports
            lengths[subject.__name__] = interrupt(subject, Path(tempfile.mkdtemp())).count
            fastseed.init(42, rank=0, world_size=1)
        at = chance.randrange(lengths[subject.__name__])
        lines = interrupt(subject, folder, at)
        made[subject.__name__] += bool(lines.where)
        for problem in problems_after(expected, folder):
            problems.append(f"{subject.__name__} at {lines.where}: {problem}")
        if any("a lock is held" in problem for problem in problems):
            break  # nothing works after it
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"attempts": made, "lines": lengths, "problems": problems}))


if __name__ == "__main__":
    main()
