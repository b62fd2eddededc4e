"""Verify that a training command repeats, resumes, and depends on its seed alone.

``docs/verify.md`` describes the experiments, the placeholders of the command and the verdicts. The
classes of the report are in ``fastseed.tools.verify.result``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..._utils import validation
from .options import EXPERIMENTS, PLACEHOLDERS, Options
from .ranks import RankComparison, RankRun, compare_ranks
from .repeat import Repetition, repeat

if TYPE_CHECKING:
    from .result import Report
    from .runner import Event

__all__ = [
    "EXPERIMENTS",
    "PLACEHOLDERS",
    "Options",
    "RankComparison",
    "RankRun",
    "Repetition",
    "compare_ranks",
    "repeat",
    "verify",
]


def verify(options: Options, progress: Callable[[Event], object] | None = None) -> Report:
    """Run a training command uninterrupted, truncated, resumed and unseeded, and compare the runs.

    Uninterrupted runs have to be identical; truncated runs (X/2 epochs, with a checkpoint) have to
    match them up to there; runs resumed from the checkpoint have to match them from there; and
    unseeded runs have to differ, or the losses do not depend on the seed. The runs are kept in
    ``options.directory``, and the next call runs only what is missing.

    Args:
        options: the command and how to run and read it.
        progress: called with a ``fastseed.tools.verify.runner.Event`` when a run starts or
            ends, from the thread that runs it, one call at a time.

    Returns:
        The report, true if the verification passed.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the directory holds something else, or a log cannot be read.
        RuntimeError: a run failed or timed out.
        OSError: the directory cannot be written.

    Examples:
        >>> import sys, tempfile
        >>> from fastseed.tools import verify
        >>> script = '''
        ... import sys
        ... start = int(open(sys.argv[3]).read()) if len(sys.argv) > 3 else 0
        ... for step in range(start, int(sys.argv[1])):
        ...     print('{"step": %d, "loss": %r}' % (step, 1 / (step + 1)))
        ... open(sys.argv[2], "w").write(sys.argv[1])
        ... '''
        >>> command = [sys.executable, "-S", "-c", script, "{epochs}", "{checkpoint}",
        ...            "[", "{resume}", "]"]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = verify.verify(verify.Options(
        ...         command=command, directory=folder, epochs=4, runs=1, baseline=False))
        >>> report.verdict
        'bit-identical'
    """
    function = "tools.verify"
    validation.check_instance(function, "options", options, Options, "Options")
    if progress is not None and not callable(progress):
        raise validation.type_error(function, "progress", "callable", progress)
    from . import comparison, diagnosis
    from .result import DIFFERENT, Report
    from .run_directory import RunDirectory
    from .runner import run_all

    directory = RunDirectory(options)
    runs = run_all(directory, progress or (lambda _: None))
    recorded = comparison.compare_recordings(runs)
    checks = comparison.check_all(runs, recorded)
    verdict, summary = comparison.conclude(checks)
    causes = diagnosis.explain(checks, recorded)
    if verdict == DIFFERENT:
        causes += diagnosis.compare_checkpoints(runs) + diagnosis.compare_sessions(directory)
    return Report(
        verdict=verdict,
        summary=summary,
        runs=tuple(runs),
        checks=checks,
        causes=tuple(causes),
        options=options.document(),
        notes=(*comparison.notes_about(runs), *directory.notes),
    )
