"""The environment of a run: recorded into a folder of plain files, read back, and compared.

    from fastseed.tools import environment

    environment.capture("runs/42/environment")
    for difference in environment.diff("runs/41/environment", "runs/42/environment"):
        print(difference)

Each section is a file ``<section>.json`` of names and values; ``SHA256SUMS`` has their checksums,
as ``sha256sum -c`` reads them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from ..._utils import JSON, atomic_file, regular_file, strict_json, validation
from ...debug.difference import Difference
from . import machine, sources
from .commands import Runner
from .variables import COMPUTING, variables

__all__ = ["SUMS", "capture", "diff", "load"]

SUMS = "SHA256SUMS"
Section = dict[str, JSON]

_LINE = re.compile(r"([0-9a-f]{64})  ([\w-]+)\.(json|patch)")
_PACKAGES = (
    r"(torch.*|numpy|scipy|triton|pytorch-triton|nvidia-.*|cuda-.*|mkl.*|intel-openmp|jax|jaxlib"
    r"|cupy.*|flash-attn|xformers|transformer-engine|apex|bitsandbytes|deepspeed|fastseed)"
)
_CHANGES = re.compile(
    rf"variables ({COMPUTING}|LD_PRELOAD|LD_AUDIT)|packages {_PACKAGES}|torch .*"
    r"|git .*/(commit|changes|changed/.*)|machine (driver|gpus|processor|capability)"
)
_IGNORED = ("about", "variables FASTSEED_RUN_DIR")  # different in every run

logger = logging.getLogger("fastseed")


def capture(
    directory: str | os.PathLike[str] | None = None, *, patches: bool = False
) -> dict[str, Section]:
    """Record the environment of this process, and write it to ``directory``.

    Generates no random numbers, changes no switch and initializes no GPU. Environment variables are
    stored by name, with the values of settings that libraries read; all other values are redacted.
    Of uncommitted changes the names of files and a digest are stored.

    Args:
        directory: a new or empty folder; a new one gets mode 0700. None: only return the sections.
        patches: also store uncommitted changes as text, with every secret that is in them, in
            ``<repository>.patch``. Logs a warning.

    Returns:
        Section -> name -> value. ``about`` has the time and what could not be read.

    Raises:
        TypeError, ValueError: an argument is invalid, or the folder is not empty.
        OSError: the folder cannot be read or written.

    Examples:
        >>> import pathlib, tempfile
        >>> from fastseed.tools import environment
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> found = environment.capture(folder / "a")
        >>> found["variables"].get("HOME", "(redacted)")
        '(redacted)'
        >>> environment.diff(folder / "a", folder / "a")
        []
    """
    function = "tools.environment.capture"
    validation.check_bool(function, "patches", patches)
    path = None
    if directory is not None:
        path = Path(validation.check_path(function, "directory", directory))
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise validation.value_error(function, "directory", "a new or empty folder", str(path))
    found, texts = _collect()
    if path is None:
        return found
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o700)
    files = {
        f"{name}.json": (json.dumps(section, indent=1, allow_nan=False) + "\n").encode()
        for name, section in found.items()
    }
    if patches and texts:
        logger.warning(
            "fastseed.tools.environment.capture: uncommitted changes are stored as text, with any "
            "secret that is in them (%s)",
            ", ".join(texts),
        )
        for name, text in texts.items():
            plain = re.sub(r"[^\w-]", "-", name)
            files[f"{plain}.patch"] = text.encode("utf-8", "surrogateescape")
    for name, data in files.items():
        atomic_file.replace(path / name, data)
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    atomic_file.replace(path / SUMS, "".join(sums).encode())
    return found


def load(directory: str | os.PathLike[str]) -> dict[str, Section]:
    """Read what ``capture`` wrote.

    Raises:
        TypeError: ``directory`` is not a path.
        ValueError: the folder holds no environment, or a damaged one.
        OSError: a file cannot be read.

    Examples:
        >>> import tempfile
        >>> from fastseed.tools import environment
        >>> folder = tempfile.mkdtemp()
        >>> found = environment.capture(folder)
        >>> environment.load(folder) == found
        True
    """
    function = "tools.environment.load"
    folder = Path(validation.check_path(function, "directory", directory))
    if not (folder / SUMS).is_file():
        rule = f"a folder with an environment ({SUMS})"
        raise validation.value_error(function, "directory", rule, os.fspath(directory))
    found: dict[str, Section] = {}
    file = folder / SUMS
    try:
        for line in regular_file.read(file).decode().removesuffix("\n").split("\n"):
            listed = _LINE.fullmatch(line)
            if listed is None:
                raise ValueError("a list of checksums")
            file = folder / f"{listed[2]}.{listed[3]}"
            data = regular_file.read(file)
            if hashlib.sha256(data).hexdigest() != listed[1]:
                raise ValueError(f"as it was written: its SHA-256 is not that of {SUMS}")
            if listed[3] == "json":
                section = strict_json.parse(data)
                if not isinstance(section, dict):
                    raise ValueError("a JSON object")
                found[listed[2]] = section
            file = folder / SUMS
    except FileNotFoundError:
        raise ValueError(f"fastseed.{function}: {str(file)!r} must exist") from None
    except ValueError as error:
        raise ValueError(f"fastseed.{function}: {str(file)!r} must be {error}") from None
    return found


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> list[Difference]:
    """Return the differences of two environments, those that change numbers first.

    What was redacted is not compared.

    Args:
        a: the folder of an environment.
        b: another.

    Returns:
        One ``Difference`` for each value that differs, by section and name; its text is ``changes
        numbers`` or ``may change numbers``.

    Raises:
        TypeError, ValueError, OSError: as ``load``.
    """
    sides = load(a), load(b)
    found = []
    for section in sorted(sides[0].keys() | sides[1].keys()):
        one, other = (side.get(section, {}) for side in sides)
        for name in sorted(one.keys() | other.keys()):
            path = f"{section} {name}"
            same = _is_same(one.get(name), other.get(name))
            if same or section in _IGNORED or path in _IGNORED:
                continue
            text = "changes numbers" if _CHANGES.fullmatch(path) else "may change numbers"
            found.append(Difference(path, one.get(name), other.get(name), text))
    return sorted(found, key=lambda difference: difference.text)


def _is_same(a: JSON, b: JSON) -> bool:
    return type(a) is type(b) and a == b  # True is not 1


def _collect() -> tuple[dict[str, Section], dict[str, str]]:
    """Return the sections, and uncommitted changes by repository; what is missing is no error."""
    environment = dict(os.environ)
    runner = Runner(environment)
    repositories = sources.Repositories(runner)
    collectors: dict[str, Callable[[], Section]] = {
        "torch": machine.torch_state,
        "machine": lambda: machine.hardware(runner),
        "packages": sources.packages,
        "apt": lambda: sources.apt(runner),
        "modules": lambda: sources.modules(environment),
        "variables": lambda: variables(environment),
        "git": repositories.all_states,
    }
    found: dict[str, Section] = {}
    problems: list[JSON] = []
    for name, collector in collectors.items():
        try:
            found[name] = collector()
        except Exception as error:  # the other sections do not depend on it
            found[name] = {}
            # Not its text, which may hold anything.
            problems.append(f"{name}: could not be read ({type(error).__name__})")
    found["about"] = machine.about([*problems, *runner.problems.values()])
    return found, repositories.texts
