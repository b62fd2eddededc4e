"""The form of a capture: one JSON document, version 1 (`docs/environment.md`), and its checks."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from ..._utils import strict_json
from ..._utils.strict_json import Invalid

FORMAT = "fastseed-environment"
VERSION = 1
DEPTH = 12  # levels of nesting that a document may have

SECTIONS = (
    *("preload", "libraries", "torch", "gpu", "packages", "editable", "python", "variables"),
    *("machine", "container", "scheduler", "modules", "conda", "system_packages", "compilers"),
    *("git", "process", "host"),
)
"""What a capture of this version has, in the order in which it is shown."""


class Capture(NamedTuple):
    """What a run stood on.

    Attributes:
        header: when and how it was captured: ``at``, ``seconds``, ``problems``, ….
        sections: section name -> dict; see ``docs/environment.md``.
        patches: name -> the text of an uncommitted diff, scrubbed.
    """

    header: dict[str, Any]
    sections: dict[str, dict[str, Any]]
    patches: dict[str, str]


def digest(sections: dict[str, Any]) -> str:
    """SHA-256 of the sections in canonical JSON: tells a file that was cut or changed."""
    canonical = json.dumps(sections, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def dump(capture: Capture) -> str:
    """The document as text."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": digest(capture.sections),
        "captured": capture.header,
        "patches": {name: patch_digest(text) for name, text in sorted(capture.patches.items())},
        "sections": capture.sections,
    }
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def patch_digest(text: str) -> str:
    """SHA-256 of a patch as it is written (scrubbed: a secret's hash would let it be guessed)."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def parse(text: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, str]]:
    """Header, sections and the patches' digests of a document; :class:`Invalid` otherwise."""
    document = strict_json.parse(text)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Invalid("a capture of `fastseed env capture`")
    if document.get("version") != VERSION or isinstance(document.get("version"), bool):
        raise Invalid(f"of version {VERSION}, not {str(document.get('version'))[:20]!r}")
    _check_depth(document)
    header, patches = _object(document, "captured"), _object(document, "patches")
    if not isinstance(header.get("problems", []), list):
        raise Invalid("a document whose 'problems' are a list")
    sections = _object(document, "sections")
    for name in sections:
        _object(sections, name)
    if document.get("sha256") != digest(sections):
        raise Invalid("as it was written (its checksum differs: damaged or edited)")
    return header, sections, patches


def _object(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    if not isinstance(value, dict):
        raise Invalid(f"a document whose {name[:40]!r} is an object")
    return value


def _check_depth(value: Any, left: int = DEPTH) -> None:
    if left == 0:
        raise Invalid(f"nested at most {DEPTH} deep")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _check_depth(one, left - 1)
