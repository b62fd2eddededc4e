"""Diffs of pages, which name a few lines of a script and leave out what is between."""

import re

from helpers.paths import ROOT


def diffs(page: str) -> list[str]:
    """Return the diffs of a page of docs/."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return re.findall(r"```diff\n(.*?)```", text, re.DOTALL)


def applied(diff: str, script: str) -> str:
    """Return a script with the changes of a diff, whose lines are found in their order.

    A line of the script may have a comment behind what the diff has of it.
    """
    given, made = script.splitlines(), []
    for line in diff.splitlines():
        kind, text = line[:1], line[1:]
        assert kind in ("+", "-", " "), line
        if kind == "+":
            made.append(text)
            continue
        while given and not (given[0] == text or given[0].startswith(text + "  #")):
            made.append(given.pop(0))
        assert given, f"the script has no such line, or none behind the one before: {text}"
        kept = given.pop(0)
        if kind == " ":
            made.append(kept)
    return "\n".join([*made, *given]) + "\n"
