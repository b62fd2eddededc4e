"""The command of a training script, with placeholders for what differs between experiments.

    train.py --epochs {epochs} --checkpoint {checkpoint} [ --resume {resume} or --seed {seed} ]

Words between ``[`` and ``]`` (separate words) are left out if a placeholder in them has no value;
``or`` separates alternatives, of which the first with all its values is used. ``{{`` is a literal
brace, as is a ``}}`` after it in the same word; ``[[`` and ``]]`` are literal brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..._utils import validation

PLACEHOLDERS = {
    "epochs": "number of epochs of this run: X, or X/2 in truncated runs",
    "total": "X in every run, for schedules that depend on it",
    "stop": "X/2; in truncated runs only",
    "seed": "the master seed; not in unseeded runs",
    "run": "the folder of this run",
    "checkpoint": "a path in it for the checkpoint (a file, a folder, or the start of a name)",
    "resume": "the same path, with a copy of the truncated run's checkpoint; in resumed runs only",
}
"""The names allowed in braces, and what replaces them."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LITERAL = {"[[": "[", "]]": "]"}
_Group = tuple[bool, list[list[str]]]  # True for a group in brackets; its alternatives


class Template:
    """A command with placeholders.

    Args:
        command: the program and its arguments; never passed to a shell.

    Raises:
        TypeError: ``command`` is not a list of strings.
        ValueError: it is empty, a placeholder is unknown, or brackets do not match.

    Example:
        >>> from fastseed.tools.verify.command import Template
        >>> Template(["train.py", "--epochs={epochs}", "[", "{seed}", "]"]).fill({"epochs": "8"})
        ('train.py', '--epochs=8')
    """

    def __init__(self, command: Sequence[str]) -> None:
        if isinstance(command, (str, bytes)) or not isinstance(command, Sequence):
            raise validation.type_error("tools.verify", "command", "a list of strings", command)
        for i, word in enumerate(command):
            validation.check_instance("tools.verify", f"command[{i}]", word, str, "a string")
            if "\0" in word:
                raise _error("a list of strings without NUL", word, i)
        self._groups = _parse(command)
        if not self._groups or self._groups[0][0]:
            raise validation.value_error(
                "tools.verify", "command", "a list that begins with a program", list(command)
            )
        names = [
            (optional, {name for words in group for name in _names(words)})
            for optional, group in self._groups
        ]
        self.names = frozenset[str]().union(*(found for _, found in names))
        self.required = frozenset[str]().union(
            *(found for optional, found in names if not optional)
        )

    def fill(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command with ``values``; KeyError if one outside brackets is missing."""
        filled: list[str] = []
        for optional, group in self._groups:
            complete = [words for words in group if set(_names(words)) <= values.keys()]
            if complete or not optional:
                filled += [_fill(word, values) for word in (complete or group)[0]]
        return tuple(filled)


def _parse(command: Sequence[str]) -> list[_Group]:
    groups: list[_Group] = []
    inside = False
    for i, word in enumerate(command):
        if word in ("[", "]"):
            if inside == (word == "["):
                raise _error("a list with [ and ] in pairs, not nested", word, i)
            inside = word == "["
            if inside:
                groups.append((True, [[]]))
            elif not any(_names(groups[-1][1][0])):
                raise _error("a list with a placeholder between [ and ] (or [[ and ]])", word, i)
        elif word == "or" and inside:
            groups[-1][1].append([])
        else:
            unknown = [name for name in _names([word]) if name not in PLACEHOLDERS]
            if unknown:
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                raise _error(f"a list with placeholders of {known} (or {{{{)", word, i)
            if inside:
                groups[-1][1][-1].append(word)
            else:
                groups.append((False, [[word]]))
    if inside:
        raise _error("a list with [ and ] in pairs, not nested", command[-1], len(command) - 1)
    return groups


def _error(rule: str, word: str, i: int) -> ValueError:
    return ValueError(
        f"{validation.value_error('tools.verify', 'command', rule, word)} at index {i}"
    )


def _names(words: Sequence[str]) -> list[str]:
    return [found[1] for word in words for found in _PLACEHOLDER.finditer(word) if found[1]]


def _fill(word: str, values: Mapping[str, str]) -> str:
    escapes = "{{" in word

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return values[found[1]]
        return found[0][0] if escapes else found[0]

    return _PLACEHOLDER.sub(one, _LITERAL.get(word, word))
