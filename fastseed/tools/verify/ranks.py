"""Run a script under torchrun with several numbers of ranks, and compare what they record."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..._utils import environ, validation
from .options import check_words
from .repeat import check_start
from .subprocesses import Process, any_ended

if TYPE_CHECKING:
    from ...debug.tree_digest import Leaf
    from ...debug.watch_file import Recording

    Table = dict[tuple[str, str], Leaf]  # by group and name

_FUNCTION = "tools.verify.compare_ranks"
_MOST = 1024  # ranks on one machine
_GROUPS = ("buffer", "gradient", "optimizer", "parameter")  # generators may differ between ranks
_WEIGHTS = ("buffer", "parameter")
_THREADS = "OMP_NUM_THREADS"
_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # docs/elastic.md
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python")


class RankRun(NamedTuple):
    """The run with one number of ranks.

    Attributes:
        ranks: the number of ranks.
        steps: the number of recorded steps, without the state before the first.
        digest: the digest of parameters and buffers after the last step, 32 hexadecimal digits;
            that of ``fastseed.debug.digest(model)`` for a model without tied weights.
        difference: the first difference from the first run, or between ranks of this run, in a
            sentence; None if they are equal.
    """

    ranks: int
    steps: int
    digest: str
    difference: str | None


class RankComparison(NamedTuple):
    """The comparison of runs with several numbers of ranks; true if all are equal.

    Attributes:
        runs: a ``RankRun`` for each number of ranks, in the given order.
        notes: variables that were set for all runs, and other remarks.
    """

    runs: tuple[RankRun, ...]
    notes: tuple[str, ...]

    def __bool__(self) -> bool:
        return all(run.difference is None for run in self.runs)


def compare_ranks(
    command: Sequence[str],
    ranks: Sequence[int],
    *,
    seed: int | None = None,
    deterministic: bool = False,
    timeout: float | None = None,
) -> RankComparison:
    """Run a script under torchrun with several numbers of ranks, and compare its training state.

    The script records with ``fastseed.debug.Watch(model, optimizer).attach()`` on every rank. After
    each step parameters, buffers, gradients and the state of the optimizer are compared bit for
    bit, over all ranks that record a tensor of one name. A ``DTensor`` counts as a whole.

    All runs have the same ``OMP_NUM_THREADS``: that of the environment, or 1. torchrun sets it to
    1 for several processes and not for one, and the number of threads changes bits.

    Args:
        command: a Python script and its arguments, or a program and its arguments
            (``["python", "-m", "train"]``), which are started on each rank, without a shell.
        ranks: at least two different numbers of ranks on this machine, each in [1, 1024].
        seed: start the script as ``fastseed run --seed`` does, [0, 2**64). None: no variable is
            set, so that the seed is the script's own.
        deterministic: start the script as ``fastseed run --deterministic`` does.
        timeout: seconds for each run; None for no limit.

    Raises:
        TypeError, ValueError: an argument is invalid, or the script records nothing.
        RuntimeError: a run cannot be started, failed or timed out.

    Examples:
        >>> from fastseed.tools import verify
        >>> verify.compare_ranks(["train.py"], [1])
        Traceback (most recent call last):
        ValueError: fastseed.tools.verify.compare_ranks: ranks must be at least two different
        numbers, got [1]
    """
    words = check_words(_FUNCTION, command)
    if not words:
        raise validation.type_error(_FUNCTION, "command", "a list of strings", command)
    counts = _check_ranks(ranks)
    variables, timeout = check_start(_FUNCTION, seed, deterministic, timeout)
    if words[0].endswith(".py"):
        words = (sys.executable, *words)
    notes = []
    if not variables.get(_THREADS):
        variables[_THREADS] = "1"
        notes.append(
            f"all runs had {_THREADS}=1; set it in a job of one rank too: torchrun sets it for "
            "several processes only, and the number of threads changes bits"
        )
    with tempfile.TemporaryDirectory(prefix="fastseed-verify-") as root:
        recorded = [
            _run(words, count, variables, Path(root, f"ranks-{count}"), timeout) for count in counts
        ]
        notes += _notes(counts, recorded)
        pairs = zip(counts, recorded, strict=True)
        runs = [_compare(counts[0], recorded[0], *other) for other in pairs]
    return RankComparison(tuple(runs), tuple(notes))


def _check_ranks(given: object) -> list[int]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise validation.type_error(_FUNCTION, "ranks", "a list of integers", given)
    counts = [
        validation.check_int(_FUNCTION, f"ranks[{i}]", one, 1, _MOST) for i, one in enumerate(given)
    ]
    if len(counts) < 2 or len(set(counts)) < len(counts):
        raise validation.value_error(_FUNCTION, "ranks", "at least two different numbers", given)
    return counts


def _run(
    words: tuple[str, ...],
    count: int,
    variables: Mapping[str, str],
    folder: Path,
    timeout: float | None,
) -> list[Recording]:
    folder.mkdir()
    logs = ("--redirects", "3", "--log-dir", str(folder / "ranks"))
    command = (*_TORCHRUN, "--nproc-per-node", str(count), *logs, *words)
    environment = {**variables, environ.RUN_DIR: str(folder), _STORE: "1"}
    name = f"with {_ranks(count)}"
    try:
        with Process(_FUNCTION, name, command, environment, folder, timeout) as process:
            any_ended([process])
    except RuntimeError as error:
        # The folder will be gone.
        raise RuntimeError(str(error).replace(f"{folder}{os.sep}", "")) from None
    return _recordings(folder, count)


# ---------------------------------------------------------------- recordings


def _recordings(folder: Path, count: int) -> list[Recording]:
    """Return the recordings of a run by rank."""
    from ...debug.watch_file import Recording  # imports torch
    from .comparison import recording

    found = recording(folder)
    if found is None:
        rule = "a script that records with fastseed.debug.Watch(model, optimizer).attach()"
        got = f"no recording in FASTSEED_RUN_DIR with {_ranks(count)}"
        raise ValueError(f"fastseed.{_FUNCTION}: command must be {rule}, got {got}")
    runs = [Recording(file) for file in found.glob("rank-*.watch")]
    return sorted(runs, key=lambda run: int(run.header["rank"]))


def _compare(
    first_count: int, first: list[Recording], count: int, other: list[Recording]
) -> RankRun:
    from ...debug.tree_digest import whole

    steps = sorted({step for one in other for step in one.steps})
    last, _ = _merged(other, steps[-1])
    weights = {name: leaf for (group, name), leaf in last.items() if group in _WEIGHTS}
    difference = next(_differences(first_count, first, count, other), None)
    trained = sum(not one.values(step).start for one in other[:1] for step in one.steps)
    return RankRun(count, trained, f"{whole(weights):032x}", difference)


def _differences(
    first_count: int, first: list[Recording], count: int, other: list[Recording]
) -> Iterator[str]:
    """Yield differences, step by step, in the order in which a training step makes them."""
    names = f"with {_ranks(first_count)}", f"with {_ranks(count)}"
    every = [{step for one in run for step in one.steps} for run in (first, other)]
    for step in sorted(every[0] | every[1]):
        for name, steps in zip(names, every, strict=True):
            if step not in steps:
                yield f"step {step}: not recorded {name}"
        left, _ = _merged(first, step)
        right, conflict = _merged(other, step)
        start = any(one.values(step).start for one in other if step in one.steps)
        where = "before the first step" if start else f"step {step}"
        if conflict is not None:
            yield f"{where}: {conflict}"
        for group, key in sorted(left | right, key=lambda pair: _GROUPS.index(pair[0])):
            one, two = left.get((group, key)), right.get((group, key))
            if one != two:
                found = f"{one or 'absent'} {names[0]}, {two or 'absent'} {names[1]}"
                yield f"{where}, {group} {key}: {found}"


def _merged(run: list[Recording], step: int) -> tuple[Table, str | None]:
    """Return the digests of all ranks at a step, and the first name on which ranks differ."""
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


def _notes(counts: Sequence[int], recorded: Sequence[list[Recording]]) -> Iterator[str]:
    """Yield settings of arithmetic in which runs differ."""
    for name in ("threads", "torch"):
        found = [sorted({str(one.header.get(name)) for one in run}) for run in recorded]
        if any(values != found[0] for values in found):
            listed = (
                f"{', '.join(v)} with {_ranks(n)}" for v, n in zip(found, counts, strict=True)
            )
            yield f"{name} differ: {'; '.join(listed)}"


def _ranks(count: int) -> str:
    return f"{count} rank{'s' * (count != 1)}"
