"""The differences of two captures, most severe first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from . import keyed_hash
from .severity import LEVELS, severity
from .storage import Capture

_ABSENT = object()


class Difference(NamedTuple):
    """One difference.

    Attributes:
        level: ``"critical"`` (changes numbers), ``"high"``, ``"medium"`` or ``"low"``.
        path: the value's path, ``section/field/…``.
        kind: ``"changed"``, ``"added"`` (only in the second) or ``"removed"``.
        before, after: the values; None where there is no value.
        why: why it matters.
    """

    level: str
    path: str
    kind: str
    before: Any
    after: Any
    why: str


def compare(a: Capture, b: Capture) -> list[Difference]:
    """Return the differences of two captures, by severity and path; headers are not compared."""
    found = []
    left, right = _comparable(a), _comparable(b)
    if a.header.get("key") != b.header.get("key"):
        left, right = keyed_hash.hide(left), keyed_hash.hide(right)
    for path, before, after in _walk("", left, right):
        order, level, why = severity(path)
        kind = "added" if before is _ABSENT else "removed" if after is _ABSENT else "changed"
        old, new = (None if value is _ABSENT else value for value in (before, after))
        found.append((order, Difference(level, path, kind, old, new, why)))
    found.sort(key=lambda one: (one[0], one[1].path))
    return [difference for _, difference in found]


def _walk(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if _has_dicts(a) and _has_dicts(b):
        a, b = ({str(i): one for i, one in enumerate(many)} for many in (a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            inner = f"{path}/{key}" if path else key
            yield from _walk(inner, a.get(key, _ABSENT), b.get(key, _ABSENT))
    elif type(a) is not type(b) or a != b:
        yield path, a, b


def _has_dicts(many: Any) -> bool:
    return isinstance(many, list) and all(isinstance(one, dict) for one in many)


def _comparable(capture: Capture) -> dict[str, Any]:
    """Return the sections, arranged so that the same library has the same path."""
    sections: dict[str, Any] = dict(capture.sections)
    libraries = sections.get("libraries", {})
    sections["libraries"] = {name: _library(copies) for name, copies in libraries.items()}
    preload = sections.get("preload", {})
    sections["preload"] = {
        name: [_preloaded(one) for one in many] if _has_dicts(many) else many
        for name, many in preload.items()
    }
    return sections


def _library(copies: Any) -> Any:
    """Return the identities and the folders of a library's copies."""
    if not _has_dicts(copies):
        return copies
    identities = [str(one.get("build_id") or f"{one.get('size')} bytes") for one in copies]
    folders = [str(one.get("folder")) for one in copies]
    return {"identity": sorted(identities), "folders": sorted(folders)}


def _preloaded(one: dict[str, Any]) -> str:
    size = f"{one.get('size')} bytes"
    identity = "missing" if one.get("missing") else one.get("build_id") or size
    return f"{one.get('name')} ({identity})"


def summary(differences: list[Difference]) -> dict[str, int]:
    """Return the number of differences of each level."""
    return {level: sum(one.level == level for one in differences) for level in LEVELS}
