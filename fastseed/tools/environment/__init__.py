"""The environment of a run: captured into a folder, read back, and compared.

    from fastseed.tools import environment

    environment.capture("runs/42/environment")
    for difference in environment.diff("runs/41/environment", "runs/42/environment"):
        print(difference.level, difference.path, difference.before, difference.after)

``docs/environment.md`` has the sections, the format, and what is redacted.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from ..._utils import atomic_file, regular_file, strict_json, validation
from .collect import Capture, collect
from .comparison import Difference, compare, is_comparable

__all__ = ["FORMAT", "VERSION", "Capture", "Difference", "capture", "diff", "load"]

FORMAT = "fastseed-environment"
VERSION = 1

_NAME = "environment.json"

logger = logging.getLogger("fastseed")


def capture(directory: str | os.PathLike[str] | None = None, *, patches: bool = False) -> Capture:
    """Capture the environment of this process, and write it to ``directory``.

    Generates no random numbers, changes no switch and initializes no GPU. Environment variables are
    stored by name, with the values of settings that libraries read; all other values are redacted.
    Of uncommitted changes the names of files and a digest are stored.

    Args:
        directory: a new or empty folder; it gets mode 0700. None: only return the capture.
        patches: also store uncommitted changes as text, with every secret that is in them. Logs a
            warning.

    Returns:
        The capture. ``header["problems"]`` lists what could not be read.

    Raises:
        TypeError, ValueError: an argument is invalid, or the folder is not empty.
        OSError: the folder cannot be read or written.

    Examples:
        >>> import pathlib, tempfile
        >>> from fastseed.tools import environment
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> found = environment.capture(folder / "a")
        >>> found.sections["variables"].get("HOME", "(redacted)")
        '(redacted)'
        >>> environment.diff(folder / "a", found)
        []
    """
    function = "tools.environment.capture"
    validation.check_bool(function, "patches", patches)
    path = None
    if directory is not None:
        path = Path(validation.check_path(function, "directory", directory))
    if path is not None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise validation.value_error(function, "directory", "a new or empty folder", str(path))
    found = collect(patches=patches)
    if found.patches:
        logger.warning(
            "fastseed.tools.environment.capture: uncommitted changes are stored as text, with any "
            "secret that is in them (%s)",
            ", ".join(found.patches),
        )
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        os.chmod(path, 0o700)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "captured": found.header,
            "sections": found.sections,
            "patches": found.patches,
        }
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        atomic_file.replace(path / _NAME, text.encode())
    return found


def load(directory: str | os.PathLike[str]) -> Capture:
    """Read the capture in ``directory``.

    Args:
        directory: the folder.

    Returns:
        The capture.

    Raises:
        TypeError: ``directory`` is not a path.
        ValueError: the folder holds no capture, a damaged one, or one of another version.

    Examples:
        >>> import tempfile
        >>> from fastseed.tools import environment
        >>> folder = tempfile.mkdtemp()
        >>> found = environment.capture(folder)
        >>> environment.load(folder) == found
        True
    """
    function = "tools.environment.load"
    file = Path(validation.check_path(function, "directory", directory)) / _NAME
    if not file.is_file():
        rule = f"a folder with a capture ({_NAME})"
        raise validation.value_error(function, "directory", rule, os.fspath(directory))
    reason = "not damaged"
    try:
        document = strict_json.parse(regular_file.read(file))
        if (document["format"], document["version"]) == (FORMAT, VERSION):
            found = Capture(document["captured"], document["sections"], document["patches"])
            if is_comparable(found):
                return found
    except ValueError as error:
        reason = str(error)
    except (KeyError, TypeError):
        pass
    rule = f"a capture of version {VERSION}, {reason}"
    raise ValueError(f"fastseed.{function}: {str(file)!r} must be {rule}")


def diff(
    a: Capture | str | os.PathLike[str], b: Capture | str | os.PathLike[str]
) -> list[Difference]:
    """Return the differences of two captures, most severe first.

    What was redacted is not compared.

    Args:
        a: a capture, or its folder.
        b: the other capture, or its folder.

    Returns:
        One ``Difference`` for each value that differs.

    Raises:
        TypeError, ValueError: as ``load``.

    Examples:
        >>> from fastseed.tools import environment
        >>> a = environment.Capture({}, {"hardware": {"driver": "550.1"}}, {})
        >>> b = environment.Capture({}, {"hardware": {"driver": "550.2"}}, {})
        >>> [(one.level, one.path, one.after) for one in environment.diff(a, b)]
        [('critical', 'hardware/driver', '550.2')]
    """
    return compare(*(one if isinstance(one, Capture) else load(one) for one in (a, b)))
