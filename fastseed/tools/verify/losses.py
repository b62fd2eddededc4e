"""Read the losses of a run from JSON lines, or from printed text for a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

STEP_KEYS = ("step", "global_step", "iteration", "iter")


class Losses(NamedTuple):
    """The losses of a run."""

    values: dict[str, float]  # by step, "17" or "3/120" with an epoch; the last one of a step
    left_out: int  # how many lines are broken, without a number or a step, or repeat a step


def read_losses(path: Path, value: str) -> Losses:
    """Return the values in JSON objects, one a line, which may stand among other output."""
    values: dict[str, float] = {}
    left_out = 0
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            if not line.startswith("{"):
                continue
            try:
                row = json.loads(line)
                if row.get(value) is None:
                    continue
                name, loss = _step_of(row), float(row[value])
            except (ValueError, TypeError, OverflowError, RecursionError):
                left_out += 1
                continue
            left_out += name in values
            values.pop(name, None)  # the last one counts, at its place
            values[name] = loss
    return Losses(values, left_out)


def _step_of(row: dict[str, Any]) -> str:
    """Return the name of a row's step; ValueError without one."""
    steps = [key for key in STEP_KEYS if row.get(key) is not None][:1]
    parts = [row[key] for key in ("epoch", *steps) if row.get(key) is not None]
    if not parts:
        raise ValueError("there is no step")
    return "/".join(str(part).removesuffix(".0") for part in parts)  # 3.0 is step 3


def printed(lines: Sequence[str], value: str) -> dict[str, float]:
    """Return the numbers that follow the name of the value in lines of text, for a picture."""
    number = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
    pattern = re.compile(rf"\b{re.escape(value)}\b\W{{0,3}}?({number})\b")
    found = [match[1] for line in lines if (match := pattern.search(line))]
    return {str(i): float(text) for i, text in enumerate(found)}
