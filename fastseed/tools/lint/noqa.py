"""Comments that keep the linter quiet: on a line, or for a whole file.

torch.manual_seed(0)  # fastseed: ignore[FS101] the reference implementation needs it
order = os.listdir(folder)  # fastseed: ignore
# fastseed: ignore-file[FS4]
"""

from __future__ import annotations

import contextlib
import io
import re
import tokenize
from typing import NamedTuple

from .registry import matching

_COMMENT = re.compile(r"#\s*fastseed:\s*(ignore(?:-file)?)\b(?:\s*\[([^\]]*)\])?", re.IGNORECASE)
_NEVER = {"FS001"}  # what was not checked is not passed over by a comment in it


class Suppressions(NamedTuple):
    """The suppression comments of a file."""

    lines: dict[int, set[str]]
    """By line, the ids that are ignored there; line 0 is the whole file."""
    unknown: list[tuple[int, int, str]]
    """(line, column from 1, text) of each name that is no rule's."""

    def hides(self, rule: str, line: int, end_line: int) -> bool:
        """Return whether a finding on these lines is ignored."""
        return any(rule in self.lines.get(at, ()) for at in (0, *range(line, end_line + 1)))


def suppressions(text: str) -> Suppressions:
    """Read the comments of a file; strings that look like comments do not count."""
    found = Suppressions({}, [])
    if "fastseed:" not in text.lower():
        return found
    # Before an error, the comments count.
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                _add(found, token)
    return found


def _add(found: Suppressions, comment: tokenize.TokenInfo) -> None:
    line, column = comment.start
    for match in _COMMENT.finditer(comment.string):
        names = ["FS"] if match[2] is None else match[2].split(",")
        ids = set().union(*map(matching, names)) - _NEVER
        found.lines.setdefault(line if match[1].lower() == "ignore" else 0, set()).update(ids)
        for name in names:
            if not matching(name):
                found.unknown.append((line, column + match.start() + 1, name.strip()))
