"""Find words that the style of this project replaces; ``make lint`` runs it.

Looks at everything that people read: Markdown, and the source of Python, C++ and CUDA files. Prints
``file:line: "found": write replacement`` and exits with 1 if it finds any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPLACEMENTS = {
    r"mend(s|ed|ing)?": "fix",
    r"predecessors?": "fwr13y",
    r"sinks?": "generator adapter",
    r"followers?": "epoch setter",
    r"data sets?": "dataset",
    r"look-ups?": "key derivation",
    r"(is|are) none": "is invalid",
    r"of (ours|theirs)": "fastseed's; the library's",
    r"(goes|went|going) on": "resumes, continues",
    r"anew": "again, restarts",
    r"believed": "used as given",
    r"told": "set, notified, given",
    r"foreign": "from another tool or version",
    r"wrong moment": "invalid state",
    r"whoever|nobody|somebody": "name the subject",
    r"stood on": "environment",
}
FRAGMENT = re.compile(r'^\s*[rf]?"""(Of|What|Whether|Who|Whose|Where) ')
# Case matters: `is None` is Python.
WORDS = re.compile("|".join(rf"\b(?:{word})\b" for word in REPLACEMENTS))
SUFFIXES = {".py", ".md", ".h", ".cpp", ".cu", ".cuh"}


def advice(word: str) -> str:
    """Return what to write in place of ``word``."""
    return next(new for old, new in REPLACEMENTS.items() if re.fullmatch(old, word))


def problems(text: str) -> list[tuple[int, str, str]]:
    """Return (line, what was found, what to write) for each finding."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [(number, match[0], advice(match[0])) for match in WORDS.finditer(line)]
        if match := FRAGMENT.match(line):
            found.append((number, match[1], "a sentence: Return ..., Check ..., a noun"))
    return found


def main() -> int:
    """Check every file that git knows of; return the exit code."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    count = 0
    for name in listed:
        path = ROOT / name
        if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__).resolve():
            for line, word, new in problems(path.read_text(encoding="utf-8")):
                print(f'{name}:{line}: "{word}": write {new}')
                count += 1
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
