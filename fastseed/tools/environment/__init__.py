"""The environment of a run: recorded into one JSON file, read back, and compared.

``environment.json`` has an object of names and values for each section. Uncommitted changes are
files beside it that ``git apply`` takes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from ..._utils import JSON, atomic_file, regular_file, strict_json, validation
from ...digest.trees import Difference
from . import machine, sources

__all__ = ["FILE", "capture", "collect", "diff", "load"]

FILE = "environment.json"
Section = dict[str, JSON]

_PACKAGES = (
    r"(torch.*|numpy|scipy|triton|pytorch-triton|nvidia-.*|cuda-.*|mkl.*|intel-openmp|jax|jaxlib"
    r"|cupy.*|flash-attn|xformers|transformer-engine|apex|bitsandbytes|deepspeed|fastseed)"
)
_CHANGES = re.compile(
    rf"variables ({sources.COMPUTING}|LD_PRELOAD|LD_AUDIT)|packages {_PACKAGES}|torch .*"
    r"|git .*/(commit|changes|changed/.*)|machine (processor|capability)|gpus .*"
)
_IGNORED = {"about", "variables FASTSEED_RUN_DIR"}  # different in every run


def capture(directory: str | os.PathLike[str], *, patches: bool = False) -> dict[str, Section]:
    """Record the environment of this process in a new or empty folder; a new one gets mode 0700.

    It draws no random numbers, changes no switch and initializes no GPU. Environment variables that
    are no settings of libraries are redacted. Uncommitted changes are names of files and a digest;
    with ``patches`` also text for ``git apply``, with every secret that is in it.
    """
    path = Path(directory)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        function = "tools.environment.capture"
        raise validation.value_error(function, "directory", "a new or empty folder", str(path))
    found, texts = collect()
    if not path.exists():
        path.mkdir(parents=True)
        path.chmod(0o700)
    files = {FILE: (json.dumps(found, indent=1, allow_nan=False) + "\n").encode()}
    for name, text in texts.items() if patches else ():
        plain = re.sub(r"[^\w-]", "-", name)
        files[f"{plain}.patch"] = text.encode("utf-8", "surrogateescape")
    for name, data in files.items():
        atomic_file.replace(path / name, data)
    return found


def load(directory: str | os.PathLike[str]) -> dict[str, Section]:
    """Read what ``capture`` wrote; ValueError if it is damaged."""
    file = Path(directory) / FILE
    try:
        found: dict[str, Section] = strict_json.parse(regular_file.read(file))
        if not isinstance(found, dict) or not all(isinstance(s, dict) for s in found.values()):
            raise ValueError("an object of sections")
    except (OSError, ValueError) as error:
        problem = f"readable ({error.strerror})" if isinstance(error, OSError) else error
        text = f"fastseed.tools.environment.load: {str(file)!r} must be {problem}"
        raise ValueError(text) from None
    return found


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> list[Difference]:
    """Return the differences of two environments, those that change numbers first.

    Their text is ``changes numbers`` or ``may change numbers``. What was redacted is not compared.
    """
    sides = load(a), load(b)
    found = []
    for section in sorted(sides[0].keys() | sides[1].keys()):
        one, other = (side.get(section, {}) for side in sides)
        for name in sorted(one.keys() | other.keys()):
            path = f"{section} {name}"
            values = one.get(name), other.get(name)
            if json.dumps(values[0]) == json.dumps(values[1]) or {section, path} & _IGNORED:
                continue
            text = "changes numbers" if _CHANGES.fullmatch(path) else "may change numbers"
            found.append(Difference(path, *values, text))
    return sorted(found, key=lambda difference: difference.text)


def collect() -> tuple[dict[str, Section], dict[str, str]]:
    environment = dict(os.environ)
    repositories = sources.Repositories()
    collectors: dict[str, Callable[[], Section]] = {
        "torch": machine.torch_state,
        "machine": machine.hardware,
        "gpus": machine.gpus,
        "packages": sources.packages,
        "apt": sources.apt,
        "modules": lambda: sources.modules(environment),
        "variables": lambda: sources.variables(environment),
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
    found["about"] = machine.about(problems)
    return found, repositories.texts
