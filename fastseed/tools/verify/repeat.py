"""Run a program twice, as it is, and compare what it prints and records."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..._utils import environ, validation
from ...determinism import launch
from .options import MONTH, check_words
from .subprocesses import Process, any_ended

_FUNCTION = "tools.verify.repeat"
_SHOWN = 200  # characters of a line


class Repetition(NamedTuple):
    """The comparison of two runs of one program; true if they are equal.

    Attributes:
        lines: the number of lines of standard output that were compared.
        line: the first line that differs, from 1; None if all are equal.
        a: that line in the first run; None where its output has ended.
        b: the same of the second run.
        recorded: the comparison of the recordings of ``fastseed.debug.Watch`` in a sentence; None
            if the program records nothing.
        same_recordings: whether the recordings are equal; True without recordings.
    """

    lines: int
    line: int | None
    a: str | None
    b: str | None
    recorded: str | None
    same_recordings: bool

    def __bool__(self) -> bool:
        return self.line is None and self.same_recordings


def repeat(
    command: Sequence[str],
    *,
    seed: int | None = None,
    deterministic: bool = False,
    timeout: float | None = None,
) -> Repetition:
    """Run a program twice and compare its standard output and recordings, to the last bit.

    Args:
        command: the program and its arguments, which are used as they are. It is never passed to
            a shell. Both runs get ``FASTSEED_RUN_DIR``, an empty temporary folder in which
            ``fastseed.debug.Watch`` records by default.
        seed: start the program as ``fastseed run --seed`` does, [0, 2**64). None: no variable is
            set, so that the seed is the program's own.
        deterministic: start the program as ``fastseed run --deterministic`` does.
        timeout: seconds for each run; None for no limit.

    Raises:
        TypeError, ValueError: an argument is invalid, or there is nothing to compare.
        RuntimeError: a run cannot be started, failed or timed out.

    Examples:
        >>> import sys
        >>> from fastseed.tools import verify
        >>> program = [sys.executable, "-S", "-c", "import os; print(os.getpid())"]
        >>> result = verify.repeat(program)
        >>> bool(result), result.line
        (False, 1)
    """
    words = check_words(_FUNCTION, command)
    if not words:
        raise validation.type_error(_FUNCTION, "command", "a list of strings", command)
    variables, timeout = check_start(_FUNCTION, seed, deterministic, timeout)
    with tempfile.TemporaryDirectory(prefix="fastseed-verify-") as root:
        folders = [Path(root, name) for name in ("a", "b")]
        for folder in folders:
            folder.mkdir()
            _run(words, {**variables, environ.RUN_DIR: str(folder)}, folder, timeout)
        return _compare(*folders)


def check_start(
    function: str, seed: int | None, deterministic: bool, timeout: float | None
) -> tuple[dict[str, str], float | None]:
    """Check how a program is to be started; return its environment variables and the timeout."""
    deterministic = validation.check_bool(function, "deterministic", deterministic)
    if timeout is not None:
        timeout = validation.check_float(function, "timeout", timeout, 1e-3, MONTH)
    variables = dict(os.environ)
    if seed is not None or deterministic:
        variables |= launch.variables(variables, seed=seed, deterministic=deterministic)
    return variables, timeout


def _run(
    command: tuple[str, ...], variables: dict[str, str], folder: Path, timeout: float | None
) -> None:
    try:
        with Process(_FUNCTION, folder.name, command, variables, folder, timeout) as process:
            any_ended([process])
    except RuntimeError as error:
        # The folder will be gone.
        raise RuntimeError(str(error).replace(f"{folder}{os.sep}", "")) from None


def _compare(a: Path, b: Path) -> Repetition:
    recorded, same = _compare_recordings(a, b)
    count = 0
    with open(a / "stdout.txt", "rb") as one, open(b / "stdout.txt", "rb") as other:
        for count, (left, right) in enumerate(itertools.zip_longest(one, other), 1):
            if left != right:
                return Repetition(count, count, _text(left), _text(right), recorded, same)
    if count == 0 and recorded is None:
        rule = "a program that prints something, or records with fastseed.debug.Watch"
        raise ValueError(f"fastseed.{_FUNCTION}: command must be {rule}, got no output")
    return Repetition(count, None, None, None, recorded, same)


def _text(line: bytes | None) -> str | None:
    return line.decode("utf-8", "replace").rstrip("\n")[:_SHOWN] if line else None


def _compare_recordings(a: Path, b: Path) -> tuple[str | None, bool]:
    """Return the comparison of two folders of recordings; (None, True) if both have none."""
    from ...debug.bisection import bisect  # imports torch
    from .comparison import recording

    first, second = recording(a), recording(b)
    if first is None or second is None:
        return (None, True) if first is second else ("only one of the runs recorded", False)
    compared = bisect(first, second)
    return str(compared), compared.equal
