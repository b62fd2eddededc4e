"""What differs between two captures, what matters most first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .schema import Capture
from .severity import LEVELS, rank

_GONE = object()


class Difference(NamedTuple):
    """One difference.

    Attributes:
        level: ``"critical"`` (decides numbers), ``"high"``, ``"medium"`` or ``"low"``.
        path: where, ``section/field/…``.
        kind: ``"changed"``, ``"added"`` (only in the second) or ``"removed"``.
        before, after: the values; None where there is none.
        why: why it matters.
    """

    level: str
    path: str
    kind: str
    before: Any
    after: Any
    why: str


def compare(a: Capture, b: Capture) -> list[Difference]:
    """The differences of two captures: by rank, then by path. When they were made is none."""
    found = []
    for path, before, after in _walk("", _comparable(a), _comparable(b)):
        place, level, why = rank(path)
        kind = "added" if before is _GONE else "removed" if after is _GONE else "changed"
        a_value, b_value = (None if value is _GONE else value for value in (before, after))
        found.append((place, Difference(level, path, kind, a_value, b_value, why)))
    found.sort(key=lambda one: (LEVELS.index(one[1].level), one[0], one[1].path))
    return [difference for _, difference in found]


def _walk(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, list) and isinstance(b, list) and _of_dicts(a) and _of_dicts(b):
        a, b = ({str(i): one for i, one in enumerate(many)} for many in (a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            inner = f"{path}/{key}" if path else key
            yield from _walk(inner, a.get(key, _GONE), b.get(key, _GONE))
    elif type(a) is not type(b) or a != b:
        yield path, a, b


def _of_dicts(many: list[Any]) -> bool:
    return all(isinstance(one, dict) for one in many)


def _comparable(capture: Capture) -> dict[str, Any]:
    """The sections, arranged so that what is the same thing has the same path."""
    sections: dict[str, Any] = dict(capture.sections)
    if isinstance(sections.get("libraries"), dict):
        sections["libraries"] = {n: _library(one) for n, one in sections["libraries"].items()}
    preload = sections.get("preload")
    if isinstance(preload, dict) and isinstance(preload.get("LD_PRELOAD"), list):
        named = [_preloaded(one) for one in preload["LD_PRELOAD"]]
        sections["preload"] = {**preload, "LD_PRELOAD": named}
    if isinstance(sections.get("git"), dict):
        sections["git"] = _repository(sections["git"])
    if isinstance(sections.get("editable"), dict):
        sections["editable"] = {n: _repository(one) for n, one in sections["editable"].items()}
    return sections


def _library(copies: Any) -> Any:
    """A library's copies as what they are (build ids) and where they lie."""
    if not isinstance(copies, list) or not _of_dicts(copies):
        return copies
    return {
        "identity": sorted(str(c.get("build_id") or f"{c.get('size')} bytes") for c in copies),
        "paths": sorted(str(c.get("path")) for c in copies),
    }


def _preloaded(one: Any) -> Any:
    if not isinstance(one, dict):
        return one
    what = "missing" if one.get("missing") else one.get("build_id") or f"{one.get('size')} bytes"
    return f"{one.get('path')} ({what})"


def _repository(state: Any) -> Any:
    """A repository with its diff as one value: which files, and the hash of the text."""
    if not isinstance(state, dict) or not isinstance(state.get("diff"), dict):
        return state
    diff = state["diff"]
    named = diff.get("files")
    files = (", ".join(map(str, named)) if isinstance(named, dict) else "") or "?"
    known = diff.get("sha256") or diff.get("problem") or ""
    return {**state, "diff": f"{files} ({str(known)[:12]})"}


def summary(differences: list[Difference]) -> dict[str, int]:
    """How many there are of each level."""
    return {level: sum(one.level == level for one in differences) for level in LEVELS}
