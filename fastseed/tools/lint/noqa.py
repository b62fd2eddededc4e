"""Comments that keep the linter quiet: on a line, or for a whole file.

torch.manual_seed(0)  # fastseed: ignore[FS101] the reference implementation needs it
order = os.listdir(folder)  # fastseed: ignore
# fastseed: ignore-file[FS4]
"""

from __future__ import annotations

import io
import re
import tokenize
from typing import NamedTuple

from .registry import RULES, matching

_COMMENT = re.compile(r"#\s*fastseed:\s*(ignore(?:-file)?)\b(?:\s*\[([^\]]*)\])?", re.IGNORECASE)
_NEVER = frozenset({"FS001"})  # what was not checked is not passed over by a comment in it


class Suppressions(NamedTuple):
    """The suppression comments of a file."""

    lines: dict[int, frozenset[str]]
    """By line, the ids that are ignored there."""
    everywhere: frozenset[str]
    unknown: tuple[tuple[int, int, str], ...]
    """(line, column from 1, text) of each name that is no rule's."""

    def hides(self, rule: str, line: int, end_line: int) -> bool:
        """Return whether a finding on these lines is ignored."""
        if rule in self.everywhere:
            return True
        return any(rule in self.lines.get(at, ()) for at in range(line, end_line + 1))


def suppressions(text: str) -> Suppressions:
    """Read the comments of a file; strings that look like comments are none."""
    lines: dict[int, frozenset[str]] = {}
    everywhere: frozenset[str] = frozenset()
    unknown: list[tuple[int, int, str]] = []
    if "fastseed:" not in text.lower():
        return Suppressions(lines, everywhere, ())
    for line, column, comment in _comments(text):
        for match in _COMMENT.finditer(comment):
            ids, strange = _ids(match[2])
            unknown += [(line, column + match.start() + 1, name) for name in strange]
            if match[1].lower() == "ignore":
                lines[line] = lines.get(line, frozenset()) | ids
            else:
                everywhere |= ids
    return Suppressions(lines, everywhere, tuple(unknown))


def _ids(names: str | None) -> tuple[frozenset[str], list[str]]:
    if names is None:
        return frozenset(RULES) - _NEVER, []
    ids: set[str] = set()
    strange = []
    for name in names.split(","):
        found = matching(name)
        ids |= found
        if not found:
            strange.append(name.strip())
    return frozenset(ids) - _NEVER, strange


def _comments(text: str) -> list[tuple[int, int, str]]:
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found.append((*token.start, token.string))
    except (tokenize.TokenError, SyntaxError):
        pass  # the comments before the error count
    return found
