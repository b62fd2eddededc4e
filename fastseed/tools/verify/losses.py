"""Read the losses of a run from JSON lines, TensorBoard event files, or printed text."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ..._utils import StateDict
from ..._utils.validation import short_repr

STEP_KEYS = ("step", "global_step", "iteration", "iter")
"""Names of steps; the first one that the first row has is used, after ``epoch`` if it has that."""


@dataclass(frozen=True)
class Curve:
    """The losses of one run.

    Attributes:
        values: name of the step (``17``, ``3/120``) -> the loss, in the order of the log.
        digits: the largest number of significant digits of a value; 17 identify every double.
        notes: remarks about the log.
    """

    values: dict[str, float]
    digits: int = 17
    notes: tuple[str, ...] = ()


def printed(lines: Sequence[str], value: str) -> Curve:
    """Return the numbers that follow the name of the value in lines of text, for a picture."""
    number = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
    pattern = re.compile(rf"\b{re.escape(value)}\b\W{{0,3}}?({number})\b")
    found = [match[1] for line in lines if (match := pattern.search(line))]
    return Curve({str(i): float(text) for i, text in enumerate(found)})


def read_curve(
    path: str | os.PathLike[str], *, value: str = "loss", step: str | None = None
) -> Curve:
    """Return the values in a log by step; without any it is empty.

    Args:
        path: the log.
        value: the name of the loss; dots lead into JSON objects. In event files, the tag.
        step: the name of the step, or several names separated by commas. None uses the first of
            ``STEP_KEYS`` after the ``epoch``.

    A file with ``tfevents`` in its name is one of TensorBoard; other files hold JSON objects, one a
    line, which may be among other output.

    Raises:
        OSError: ``path`` cannot be read.
        ImportError: an event file is read without tensorboard.
        ValueError: a value is not a number, or no value has a step.
    """
    keys = [part.strip() for part in step.split(",")] if step else []
    notes: list[str] = []
    curve: dict[str, float] = {}
    names: dict[str, None] = {}
    rows = _events(path) if "tfevents" in os.path.basename(path) else _json_rows(path, notes)
    unnamed = repeated = 0
    for row in rows:
        names |= dict.fromkeys(islice(row, 20))
        found = _get(row, value)
        if found is None:
            continue
        if not keys:
            steps = [key for key in STEP_KEYS if _get(row, key) is not None][:1]
            keys = (["epoch"] if _get(row, "epoch") is not None else []) + steps or ["step"]
        parts = [_get(row, key) for key in keys]
        if None in parts:
            unnamed += 1
            continue
        name = "/".join(map(_text, parts))
        repeated += name in curve
        curve.pop(name, None)  # the last value counts, at its place
        curve[name] = _number(path, value, found)
    if not curve and unnamed:
        rule = f"have a step ({', '.join(keys)}) beside each {value!r}; name it by step"
        has = f"; its rows have {', '.join(map(short_repr, islice(names, 20)))}"
        raise ValueError(f"fastseed.verify: {os.fspath(path)!r} must {rule}, got none{has}")
    notes += [f"{unnamed} values without a step were left out"] * bool(unnamed)
    notes += [f"{repeated} steps were repeated; the last value counts"] * bool(repeated)
    return Curve(curve, _digits(curve), tuple(notes))


def _json_rows(path: str | os.PathLike[str], notes: list[str]) -> Iterator[StateDict]:
    """Yield the JSON objects; lines that do not start like one are ordinary output."""
    broken = 0
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    broken += 1
    if broken:
        notes.append(f"{broken} lines are not JSON and were left out")


def _events(path: str | os.PathLike[str]) -> Iterator[StateDict]:
    """Yield the scalars of an event file by their tags."""
    folder = "tensorboard.backend.event_processing"
    try:
        accumulators = importlib.import_module(f"{folder}.plugin_event_accumulator")
        from_proto = importlib.import_module("tensorboard.util.tensor_util").make_ndarray
    except ImportError as error:
        message = 'event files are read with tensorboard: pip install "fastseed[report]"'
        raise ImportError(f"fastseed.verify: {message}") from error
    # 0 is no limit; the steps before a restart stay.
    reader = accumulators.EventAccumulator(
        os.fspath(path), tensor_size_guidance={"scalars": 0}, purge_orphaned_data=False
    )
    reader.Reload()
    tags = reader.PluginTagToContent("scalars") if "scalars" in reader.ActivePlugins() else ()
    for tag in tags:
        for event in reader.Tensors(tag):
            yield {"step": event.step, tag: from_proto(event.tensor_proto).item()}


def _get(row: StateDict, key: str) -> object:
    """Return one value, None if it is missing or empty; dots in ``key`` lead into objects."""
    found = row.get(key)
    first, dot, rest = key.partition(".")
    if found is None and dot and isinstance(row.get(first), dict):
        return _get(row[first], rest)
    return None if found == "" else found


def _text(part: object) -> str:
    if isinstance(part, list):
        return "/".join(map(_text, part))
    return str(part).removesuffix(".0")  # 3.0 is step 3


def _number(path: str | os.PathLike[str], name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"fastseed.verify: {name!r} in {os.fspath(path)!r} must be a number, got "
            f"{short_repr(value)}"
        ) from None


def _digits(curve: dict[str, float]) -> int:
    """Return the largest number of significant digits of the first finite values."""
    finite = islice(filter(math.isfinite, curve.values()), 100)
    mantissas = (repr(value).partition("e")[0].strip("-").replace(".", "") for value in finite)
    return max((len(text.strip("0")) for text in mantissas), default=17) or 1
