"""Reading the losses that a run wrote, whatever it wrote them with.

Nothing in a log is trusted: lines are bounded, text is decoded leniently, what is no number is an
error that names its line. What a killed run leaves behind its last whole line is left out.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

from ..._utils.validation import describe
from . import log_text
from .log_rows import Lines, Rows, foreign, refuse
from .log_tensorboard import MARK, read_tensorboard
from .result import Curve

FORMATS = ("jsonl", "dlll", "csv", "tensorboard", "regex")
"""What :func:`read_curve` reads."""

_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv"}
_LOOKED_AT = 10_000  # lines, to tell a format


def read_curve(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    value: str = "loss",
    step: str | None = None,
    pattern: str | None = None,
) -> Curve:
    """The values of a log by their steps.

    Args:
        path: a file, or a folder of TensorBoard's event files.
        format: one of :data:`FORMATS`; None tells it by the pattern, the name of the file, or what
            stands in it.

            * ``jsonl``: an object a line; a dotted ``value`` reaches into objects. Lines that do
              not begin with ``{`` are ordinary output.
            * ``dlll``: DLLogger's lines ``DLLL {…}``, amid other output too.
            * ``csv``: with a header; separated by commas, tabs, semicolons or bars.
            * ``tensorboard``: event files (extra ``tensorboard``), those of a folder as one run's.
            * ``regex``: what ``pattern`` finds in each line.
        value: the key, column or tag; rows without it are left out. A pattern names its own.
        step: the key or column that names the steps, or several (``"epoch,step"``); of ``jsonl``
            and ``csv`` only. None takes the first of ``step``, ``global_step``, ``iteration``,
            ``iter`` and ``epoch`` that there is, and the epoch as well (``"3/7"``) where the same
            step stands in two epochs; without any, values are counted from 0.
        pattern: a regular expression with a group ``value`` (or only one group) and, if lines name
            their steps, groups whose names begin with ``step``. It runs over each line as it is:
            one that backtracks without end does so here.

    Returns:
        The curve. Values are float64, bit for bit what the text says, NaN and infinities too; of a
        step that is there twice the last counts, in the place of the first.

    Raises:
        TypeError: an argument of another type.
        FileNotFoundError: there is no such path.
        OSError: it cannot be read.
        ValueError: it holds no such values (the message says what it holds), or something that is
            no number, or more than 10,000,000 values; or an argument does not fit.
        ImportError: TensorBoard's files without the package ``tensorboard``.
    """
    return read_curves([path], format=format, value=value, step=step, pattern=pattern)[0]


def read_curves(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    value: str = "loss",
    step: str | None = None,
    pattern: str | None = None,
) -> list[Curve]:
    """The curves of runs that are to be compared: as :func:`read_curve`, with steps named alike.

    A run of one epoch alone does not tell whether steps are counted anew in each; if another of
    these does, the epoch is part of the names in all of them.
    """
    _check(format, value, step, pattern)
    read = [_rows(_path(path), format, value, step, pattern) for path in paths]
    with_epoch = any(rows.restarts() for rows in read)
    return [rows.curve(with_epoch=with_epoch) for rows in read]


def _rows(path: str, format: str | None, value: str, step: str | None, pattern: str | None) -> Rows:
    chosen = format or _detect(path, pattern, value)
    if chosen in ("dlll", "tensorboard", "regex") and step is not None:
        refuse(f"step must be None with {chosen!r}, which names its steps, got {describe(step)}")
    if (chosen == "regex") != (pattern is not None):
        must = "given with 'regex'" if pattern is None else f"None with {chosen!r}"
        refuse(f"pattern must be {must}, got {describe(pattern)}")
    if os.path.isdir(path) and chosen != "tensorboard":
        refuse(f"path must be a file with {chosen!r}, got the folder {path!r}")
    keys = None if step is None else tuple(part.strip() for part in step.split(","))
    readers: dict[str, Callable[[], Rows]] = {
        "jsonl": lambda: log_text.read_jsonl(path, value, keys),
        "dlll": lambda: log_text.read_dlll(path, value),
        "csv": lambda: log_text.read_csv(path, value, keys),
        "tensorboard": lambda: read_tensorboard(path, value),
        "regex": lambda: log_text.read_regex(path, pattern or ""),
    }
    return readers[chosen]()


def _path(path: str | os.PathLike[str]) -> str:
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise TypeError(
            f"fastseed.tools.verify: path must be a path, got {describe(path)} of type "
            f"{type(path).__name__}"
        ) from None
    if "\0" in text:
        refuse(f"path must be a path, got {describe(text)}")
    if not os.path.exists(text):
        folder = os.path.dirname(os.path.abspath(text))
        try:
            there = sorted(os.listdir(folder))
        except OSError:
            instead = "nor is there its folder"
        else:
            shown = ", ".join(there[:10]) + (", …" if len(there) > 10 else "")
            instead = f"its folder holds {shown}" if there else "its folder is empty"
        raise FileNotFoundError(f"fastseed.tools.verify: path must exist, got {text!r}; {instead}")
    return text


def _check(format: str | None, value: str, step: str | None, pattern: str | None) -> None:
    given = {"format": format, "value": value, "step": step, "pattern": pattern}
    for name, found in given.items():
        if not isinstance(found, str) and (found is not None or name == "value"):
            raise TypeError(
                f"fastseed.tools.verify: {name} must be a string, got {describe(found)} of type "
                f"{type(found).__name__}"
            )
    if format is not None and format not in FORMATS:
        refuse(f"format must be one of {FORMATS}, got {describe(format)}")
    if not value:
        refuse("value must be the name of what is read, got ''")
    keys = [] if step is None else [part.strip() for part in step.split(",")]
    if step is not None and (not all(keys) or len(set(keys)) < len(keys)):
        refuse(f"step must be keys, separated by commas, got {describe(step)}")


def _detect(path: str, pattern: str | None, value: str) -> str:
    """The format of a log, by the pattern, its name or its first lines."""
    if os.path.isdir(path) or (MARK in os.path.basename(path) and pattern is None):
        return "tensorboard"
    if pattern is not None:
        return "regex"
    named = _SUFFIXES.get(os.path.splitext(path)[1].lower())
    if named == "csv":
        return named
    lines = Lines(path)
    objects, fits = False, None
    for line in lines:
        if "DLLL" in line and log_text.DLLL.search(line):
            return "dlll"  # whatever its name: DLLogger's files are mostly called *.json
        objects = objects or log_text.is_object(line)
        fits = fits or log_text.suggest(line, value)
        if lines.number >= _LOOKED_AT:
            break
    if named or objects:
        return named or "jsonl"
    if not lines.number:
        refuse(f"{path} must hold values of a run, got an empty file")
    refuse(
        f"format must be given for {path}{foreign(path)}: its name and first lines do not tell it; "
        f"one of {FORMATS}, or pattern= (--pattern) with a group named 'value'"
        + (f": one that fits is {shlex.quote(fits)}" if fits else "")
    )
