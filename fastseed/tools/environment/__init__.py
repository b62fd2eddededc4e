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
import os
import re
from collections.abc import Callable
from pathlib import Path

from ..._utils import JSON, atomic_file, regular_file, validation
from ..._utils.log import logger
from ...debug.tree_digest import Difference
from . import machine, sources
from .machine import Runner

__all__ = ["SUMS", "capture", "collect", "diff", "load"]

SUMS = "SHA256SUMS"
Section = dict[str, JSON]

_PACKAGES = (
    r"(torch.*|numpy|scipy|triton|pytorch-triton|nvidia-.*|cuda-.*|mkl.*|intel-openmp|jax|jaxlib"
    r"|cupy.*|flash-attn|xformers|transformer-engine|apex|bitsandbytes|deepspeed|fastseed)"
)
_CHANGES = re.compile(
    rf"variables ({sources.COMPUTING}|LD_PRELOAD|LD_AUDIT)|packages {_PACKAGES}|torch .*"
    r"|git .*/(commit|changes|changed/.*)|machine (driver|gpus|processor|capability)"
)
_IGNORED = {"about", "variables FASTSEED_RUN_DIR"}  # different in every run


def capture(directory: str | os.PathLike[str], *, patches: bool = False) -> dict[str, Section]:
    """Record the environment of this process in a new or empty folder; a new one gets mode 0700.

    Generates no random numbers, changes no switch and initializes no GPU. Environment variables are
    stored by name, with the values of settings that libraries read; all other values are redacted.
    Of uncommitted changes the names of files and a digest are stored; with ``patches`` also the
    changes as text, with every secret that is in them, in ``<repository>.patch``.
    """
    path = Path(directory)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        function = "tools.environment.capture"
        raise validation.value_error(function, "directory", "a new or empty folder", str(path))
    found, texts = collect()
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
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()]
    for name, data in {**files, SUMS: "".join(sums).encode()}.items():
        atomic_file.replace(path / name, data)
    return found


def load(directory: str | os.PathLike[str]) -> dict[str, Section]:
    """Read what ``capture`` wrote; ValueError if it is damaged."""
    folder = Path(directory)
    found: dict[str, Section] = {}
    file = folder / SUMS
    try:
        for line in regular_file.read(file).decode().removesuffix("\n").split("\n"):
            digest, _, name = line.partition("  ")
            file = folder / name
            data = regular_file.read(file)
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"as it was written: its SHA-256 is not that of {SUMS}")
            if file.suffix == ".json":
                found[file.stem] = json.loads(data)
    except (OSError, ValueError) as error:
        problem = f"readable ({error.strerror})" if isinstance(error, OSError) else error
        raise ValueError(
            f"fastseed.tools.environment.load: {str(file)!r} must be {problem}"
        ) from None
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
    found["about"] = machine.about([*problems, *runner.problems.values()])
    return found, repositories.texts
