"""A capture as one JSON document, `environment.json`, in a folder (docs/environment.md)."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..._utils import atomic_file, strict_json, validation

FORMAT = "fastseed-environment"
VERSION = 1
NAME = "environment.json"

SECTIONS = (
    *("preload", "libraries", "torch", "gpu", "packages", "editable", "python", "variables"),
    *("machine", "container", "modules", "conda", "system_packages", "compilers", "git"),
    *("process", "host"),
)
"""The sections of a capture, in the order in which they are shown."""


class Capture(NamedTuple):
    """The environment of a run.

    Attributes:
        header: when and how it was captured: ``at``, ``seconds``, ``problems``, ``key`` (the id of
            the key of its hashes), ….
        sections: section name -> dict; see ``docs/environment.md``.
        patches: repository -> its uncommitted changes as text; empty unless they were requested.
    """

    header: dict[str, Any]
    sections: dict[str, dict[str, Any]]
    patches: dict[str, str]


def check_path(function: str, argument: str, path: Any) -> Path:
    """Return ``path`` as a :class:`~pathlib.Path`."""
    function = f"environment.{function}"
    validation.check_instance(function, argument, path, (str, os.PathLike), "a path")
    text = validation.check_text(function, argument, os.fspath(path))
    if "\0" in text:
        raise validation.value_error(function, argument, "a path", text)
    return Path(text)


def check_free(path: Path, overwrite: bool) -> None:
    """Raise ValueError if a capture must not be written to ``path``."""
    function, argument = "environment.capture", "directory"
    if path.exists() and not path.is_dir():
        raise validation.value_error(function, argument, "a folder or free", str(path))
    held = set(os.listdir(path)) if path.exists() else set()
    if held and held != {NAME}:
        raise validation.value_error(function, argument, "new, empty, or a capture", str(path))
    if held and not overwrite:
        rule = "new or empty (overwrite=True, --overwrite, replaces a capture)"
        raise validation.value_error(function, argument, rule, str(path))


def digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of everything but itself, as canonical JSON; it detects damage."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def write(path: Path, capture: Capture) -> None:
    """Write a capture to the folder ``path``, which gets mode 0700."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "captured": capture.header,
        "sections": capture.sections,
        "patches": capture.patches,
    }
    document["sha256"] = digest(document)
    path.mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o700)
    text = json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    atomic_file.replace(path / NAME, text.encode())


def read(path: Path) -> Capture:
    """Return the capture in the folder ``path``; ValueError says what is wrong with the file."""
    file = path / NAME
    if not file.is_file():
        rule = f"a folder with a capture ({NAME})"
        raise validation.value_error("environment.load", "directory", rule, str(path))
    try:
        return _parse(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"fastseed.environment.load: {str(file)!r} must be {error}") from None


def _parse(data: bytes) -> Capture:
    document = strict_json.parse(data)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("a capture of `fastseed env capture`")
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise ValueError(f"of version {VERSION}, not {str(document.get('version'))[:20]!r}")
    parts: Any = [document.get(name) for name in ("captured", "sections", "patches")]
    if document.get("sha256") != digest(document) or not all(isinstance(p, dict) for p in parts):
        raise ValueError("as it was written (its checksum differs: it is damaged or edited)")
    return Capture(*parts)
