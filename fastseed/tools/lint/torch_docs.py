"""torch's own list of operations that are not deterministic, read from the torch that is installed.

It stands, as a list for readers, in the docstring of :func:`torch.use_deterministic_algorithms`
(2.10 to 2.13): operations that behave once the switch is on, and operations that raise. Each may
come with a condition, of which the part that a call shows (``mode='max'``) is understood. Where the
docstring is missing or its form has changed, :class:`Listed` holds the reason, and the rules report
nothing.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

ACTS, RAISES = "acts", "raises"

_HEADS = (("will act deterministically", ACTS), ("will throw a", RAISES))
_ITEM = re.compile(r"^(\s*)\*\s+:(?:class|func|meth|attr):`~?([\w.]+)`\s*(.*)$")
_SUB_ITEM = re.compile(r"^\s*[-*]\s+``([^`]+)``\s*$")
_PAIR = re.compile(r"``(\w+)\s*=\s*('[^']*'|\"[^\"]*\"|True|False|None|-?\d+)``")
_CHOICE = re.compile(r"one of the following (\w+?)s? is used", re.IGNORECASE)
_GIVEN = re.compile(r"``(\w+)``\s+tensor\s+is\s+given")
_UNSEEN = re.compile(r"quantized|sparse|index is a list|src`? type", re.IGNORECASE)
# Listed as a whole, though its CUDA code complains of images alone (ATen's NLLLoss2d.cu).
_BY_SHAPE = {"torch.nn.NLLLoss"}
_FEWEST = 10  # operations; with less the docstring is not what it was


class Operation(NamedTuple):
    """An operation on the list."""

    name: str
    """As torch documents it: ``torch.nn.CTCLoss``."""
    kind: str
    """``acts``: deterministic with the switch on; ``raises``: no deterministic implementation."""
    condition: str
    """In torch's words; empty: always."""
    needs: tuple[tuple[str, tuple[object, ...]], ...]
    """(argument, values): one of the values has to be passed. No values: it has to be passed."""
    seen: bool
    """True if the arguments of a call show whether the condition holds."""


class Listed(NamedTuple):
    """The list as read from torch."""

    operations: dict[str, tuple[Operation, ...]]
    """By every name that the operation can be called by."""
    torch: str
    """The version it was read from."""
    problem: str
    """Why there is nothing; empty if there is."""


@functools.cache
def listed() -> Listed:
    """The list of the installed torch. Imports torch; changes nothing."""
    import torch

    text = getattr(torch.use_deterministic_algorithms, "__doc__", None) or ""
    found = parse(text)
    version = str(torch.__version__)
    if len(found) < _FEWEST:
        problem = (
            f"the documentation of torch.use_deterministic_algorithms in torch {version} does not "
            f"list operations in a form that is known ({len(found)} found)"
        )
        return Listed({}, version, problem)
    names: dict[str, tuple[Operation, ...]] = {}
    for operation in found:
        for name in _called(operation.name):
            names[name] = (*names.get(name, ()), operation)
    return Listed(names, version, "")


def parse(text: str) -> list[Operation]:
    """The operations that a docstring lists, in order; empty where it lists none."""
    found: list[Operation] = []
    kind, item, depth = "", "", 0
    lines: list[str] = []
    paragraph, blank = "", True  # the last one before a list is its heading

    def close() -> None:
        if item and kind:
            found.append(_operation(item, kind, lines))

    for line in text.splitlines():
        match = _ITEM.match(line)
        indent = len(line) - len(line.lstrip())
        if match:
            close()
            if paragraph:
                kinds = [its for words, its in _HEADS if words in paragraph]
                kind, paragraph = (kinds[0] if paragraph.endswith(":") and kinds else ""), ""
            item, lines, depth = match[2], [match[3]], len(match[1])
        elif line.strip() and (not item or indent <= depth):  # it ends a list
            close()
            item, paragraph = "", line.strip() if blank else f"{paragraph} {line.strip()}"
            blank = False
        elif item:
            lines.append(line)
        elif not line.strip():
            blank = True
    close()
    return found


def _operation(name: str, kind: str, lines: list[str]) -> Operation:
    condition = " ".join(" ".join(lines).split())
    needs: dict[str, tuple[object, ...]] = {}
    for argument, value in _PAIR.findall(condition):
        needs[argument] = (*needs.get(argument, ()), _literal(value))
    choice = _CHOICE.search(condition)
    if choice:
        values = [m[1] for m in map(_SUB_ITEM.match, lines) if m]
        needs[choice[1]] = tuple(values)
    for argument in _GIVEN.findall(condition):
        needs[argument] = ()
    if "indices output" in condition:
        needs["dim"] = ()
    seen = not _UNSEEN.search(condition) and name not in _BY_SHAPE
    return Operation(name, kind, condition, tuple(needs.items()), seen)


def _literal(text: str) -> object:
    words: dict[str, object] = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    return text[1:-1] if text[0] in "'\"" else int(text)


def _called(name: str) -> set[str]:
    """Every name that an operation has: a method, a function, a class and its function."""
    import torch
    import torch.nn.functional as functional

    last = name.rpartition(".")[2]
    names = {name}
    if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional."):
        plain = last.lower()  # AvgPool3d is avg_pool3d, CTCLoss is ctc_loss
        same = [one for one in vars(functional) if one.replace("_", "") == plain and one[0] != "_"]
        return names | {f"torch.nn.functional.{one}" for one in same}
    if name.startswith("torch.nn.functional."):
        return names
    for one in {last, last.rstrip("_"), last.rstrip("_") + "_"}:
        if one.startswith("__"):
            continue
        if hasattr(torch.Tensor, one):
            names.add(f"torch.Tensor.{one}")
        if callable(getattr(torch, one, None)) and not one.endswith("_"):
            names.add(f"torch.{one}")
    return names
