"""Python and its packages, and the packages, modules and compilers around it."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .commands import Runner
from .keyed_hash import Hasher
from .machine import read

_COMPILERS = ("gcc", "g++", "clang", "nvcc", "hipcc", "icx", "ld")
_MODULE = re.compile(r"[\w.+-]+(/[\w.+-]+)*/v?\d[\w.+-]*")  # gcc/12.2


def python(hasher: Hasher) -> dict[str, Any]:
    """Return the interpreter, how it was started, and what runs before any script."""
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_"}
    return {
        "version": platform.python_version(),
        "full_version": sys.version,
        "implementation": platform.python_implementation(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "flags": {name: flag for name, flag in flags.items() if isinstance(flag, (int, bool))},
        "startup": _startup(hasher),
        "executable": hasher.path(sys.executable),
        "prefix": hasher.path(sys.prefix),
        "base_prefix": hasher.path(sys.base_prefix),
        "path": [hasher.path(entry) for entry in sys.path],
    }


def _startup(hasher: Hasher) -> dict[str, str]:
    """Return site customisation and `.pth` files, by name with a hash of their content."""
    files = [
        getattr(sys.modules.get(n), "__file__", None) for n in ("sitecustomize", "usercustomize")
    ]
    paths = [Path(file) for file in files if file]
    for folder in (*site.getsitepackages(), site.getusersitepackages()):
        paths += sorted(Path(folder).glob("*.pth"))
    return {path.name: hasher("startup", read(path)) for path in paths}


def packages(hasher: Hasher) -> dict[str, dict[str, Any]]:
    """Return every distribution on ``sys.path`` by normalised name.

    Each has its version; the commit that it was installed from, a hash of its URL, and whether it
    is editable, if the installer recorded that (PEP 610); and the versions of that name later on
    the path, a sign of a mixed environment.
    """
    found: dict[str, dict[str, Any]] = {}
    for distribution in importlib.metadata.distributions():
        name, version = distribution.metadata["Name"], str(distribution.version)
        if not name:  # damaged metadata
            continue
        key = re.sub(r"[-_.]+", "-", str(name)).lower()
        if key in found:
            if version != found[key]["version"]:
                found[key].setdefault("hidden", []).append(version)
            continue
        found[key] = {"version": version}
        origin = _direct_url(distribution)
        if origin:
            commit = str(origin.get("vcs_info", {}).get("commit_id"))
            if re.fullmatch(r"[0-9a-f]{7,64}", commit):
                found[key]["commit_id"] = commit
            found[key]["editable"] = bool(origin.get("dir_info", {}).get("editable"))
            found[key]["url"] = hasher("url", str(origin.get("url")))
    return dict(sorted(found.items()))


def _direct_url(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    try:
        return dict(json.loads(distribution.read_text("direct_url.json") or "{}"))
    except (OSError, ValueError):
        return {}


def source_folders() -> dict[str, Path]:
    """Return the folders of editable packages, and those that `PYTHONPATH` adds (path-1, …)."""
    folders = {}
    for distribution in importlib.metadata.distributions():
        origin = _direct_url(distribution)
        url = urlsplit(str(origin.get("url", "")))
        if url.scheme == "file" and origin.get("dir_info", {}).get("editable"):
            folders[str(distribution.metadata["Name"])] = Path(unquote(url.path))
    own = [sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), site.getusersitepackages()]
    roots = [Path(root).resolve() for root in (*own, *site.getsitepackages())]
    for number, entry in enumerate(filter(None, sys.path), 1):
        path = Path(entry).resolve()
        if path.is_dir() and not any(path.is_relative_to(root) for root in roots):
            folders[f"path-{number}"] = path
    return folders


def modules(environment: Mapping[str, str], hasher: Hasher) -> dict[str, str]:
    """Return the loaded environment modules, as the shell records them: name -> version."""
    loaded = [name for name in environment.get("LOADEDMODULES", "").split(":") if name]
    plain = [name if _MODULE.fullmatch(name) else hasher("module", name) for name in loaded]
    return {name.rpartition("/")[0] or name: name for name in plain}


def conda(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the packages of this interpreter's conda environment, from conda's records."""
    for prefix in filter(None, [sys.prefix, environment.get("CONDA_PREFIX")]):
        names = [path.stem for path in sorted(Path(prefix, "conda-meta").glob("*-*-*.json"))]
        if names:  # name-version-build
            return {name.rsplit("-", 2)[0]: name for name in names}
    return {}


def compilers(runner: Runner) -> dict[str, str]:
    """Return the version numbers that compilers print, and those of `CC` and `CXX`."""
    found = {}
    commands = {name: [name] for name in _COMPILERS}
    commands |= {name: runner.environment.get(name, "").split() for name in ("CC", "CXX")}
    for name, command in commands.items():
        printed = runner.run(*command, "--version") if command else None
        numbers = re.findall(r"\d+(?:\.\d+)+", printed or "")
        if numbers:
            found[name] = " ".join(dict.fromkeys(numbers))
    return found
