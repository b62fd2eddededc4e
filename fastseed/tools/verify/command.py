"""The command of a training script, with places for what changes from experiment to experiment.

    train.py --epochs {epochs} --checkpoint {checkpoint} [ --resume {resume} or --seed {seed} ]

A word in braces is a place. Words between ``[`` and ``]`` (words of their own) are left out where a
place in them has no value; ``or`` separates alternatives, of which the first that can be filled is
taken. ``{{`` is a brace that is meant, and ``}}`` after it in the same word another (but JSON as in
``{"a":{"b":1}}`` stays as it is); ``[[`` and ``]]`` are words that are a bracket.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from ..._utils import validation

PLACES = {
    "epochs": "how many epochs this run trains: X, or X/2 in the half runs",
    "total": "X in every run, for schedules that depend on it",
    "stop": "X/2; in half runs only",
    "seed": "the master seed; in no unseeded run",
    "run": "the folder of this run",
    "checkpoint": "a path in it for the checkpoint (a file or a folder, or the start of its name)",
    "resume": "the same path, where a copy of the half run's checkpoint is; in resumed runs only",
}
"""What may stand in braces, and what it becomes."""

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WORDS = {"[[": "[", "]]": "]"}


class Template:
    """A command with places.

    Args:
        command: the program and its arguments; never shown to a shell.

    Raises:
        TypeError: not a list of strings.
        ValueError: it is empty, a place is unknown, or brackets do not match.
    """

    def __init__(self, command: Sequence[str]) -> None:
        if isinstance(command, (str, bytes)) or not isinstance(command, Sequence):
            raise TypeError(
                "fastseed.tools.verify: command must be a list of strings, "
                f"got {validation.describe(command)} of type {type(command).__name__}"
            )
        for i, word in enumerate(command):
            if not isinstance(word, str):
                raise TypeError(
                    "fastseed.tools.verify: command must be a list of strings, "
                    f"got {validation.describe(word)} of type {type(word).__name__} at {i}"
                )
            if "\0" in word:
                raise ValueError(f"fastseed.tools.verify: command must hold no NUL, got one at {i}")
            try:
                os.fsencode(word)
            except UnicodeEncodeError:
                raise ValueError(
                    "fastseed.tools.verify: command must be text that the system can encode, "
                    f"got {validation.describe(word)} at {i}"
                ) from None
        self.command = tuple(command)
        self._groups = _parse(self.command)
        self.places = frozenset(
            place for _, group in self._groups for words in group for place in _places(words)
        )
        if not self._groups or self._groups[0][0]:
            raise ValueError(
                "fastseed.tools.verify: command must begin with a program, "
                f"got {validation.describe(list(command))}"
            )

    @property
    def fixed(self) -> frozenset[str]:
        """The places that stand in no brackets."""
        return frozenset(
            place
            for optional, group in self._groups
            if not optional
            for words in group
            for place in _places(words)
        )

    def fill(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """The command with ``values``; what needs others is left out.

        Raises:
            KeyError: a place outside brackets has no value.
        """
        filled: list[str] = []
        for optional, group in self._groups:
            fitting = [words for words in group if set(_places(words)) <= values.keys()]
            if fitting or not optional:
                filled += [_fill(word, values) for word in (fitting or group)[0]]
        return tuple(filled)


_Group = tuple[bool, list[list[str]]]  # whether in brackets; alternatives


def _parse(command: tuple[str, ...]) -> list[_Group]:
    groups: list[_Group] = []
    inside = False
    for i, word in enumerate(command):
        if word == "[":
            if inside:
                raise _unmatched("[", i)
            inside = True
            groups.append((True, [[]]))
        elif word == "]":
            if not inside:
                raise _unmatched("]", i)
            inside = False
        elif word == "or" and inside:
            groups[-1][1].append([])
        elif inside:
            groups[-1][1][-1].append(_known(word, i))
        else:
            groups.append((False, [[_known(word, i)]]))
    if inside:
        raise ValueError(
            "fastseed.tools.verify: command must close its brackets with ], got one open"
        )
    for optional, group in groups:
        if optional and not all(any(_places(words)) for words in group[:1]):
            raise ValueError(
                "fastseed.tools.verify: command must have a place between [ and ] (a bracket that is "
                f"meant is [[ or ]]), got {validation.describe(group[0])}"
            )
    return groups


def _unmatched(word: str, i: int) -> ValueError:
    return ValueError(
        f"fastseed.tools.verify: command must have [ and ] in pairs, none in another, got {word} at {i}"
    )


def _known(word: str, i: int) -> str:
    unknown = [place for place in _places([word]) if place not in PLACES]
    if unknown:
        known = ", ".join(f"{{{place}}}" for place in PLACES)
        raise ValueError(
            f"fastseed.tools.verify: command must have places of {known} (a brace that is meant is "
            f"{{{{), got {{{unknown[0]}}} at {i}"
        )
    return word


def _places(words: Sequence[str]) -> list[str]:
    return [found[1] for word in words for found in _PLACE.finditer(word) if found[1]]


def _fill(word: str, values: Mapping[str, str]) -> str:
    escapes = "{{" in word

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return values[found[1]]
        return found[0][0] if escapes else found[0]

    return _PLACE.sub(one, _WORDS.get(word, word))
