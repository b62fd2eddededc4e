"""Python, the packages in it, and the compilers beside it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .commands import Runner

_COMPILERS = ("gcc", "g++", "clang", "nvcc", "hipcc", "icx", "ld")


def python() -> dict[str, Any]:
    """The interpreter, how it was built and started, and what runs before any script."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {
        "version": platform.python_version(),
        "full_version": sys.version,
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "gil": gil,
        "hash_randomization": bool(sys.flags.hash_randomization),
        "flags": {n: getattr(sys.flags, n) for n in dir(sys.flags) if n[0] != "_" and _plain(n)},
        "config_args": sysconfig.get_config_var("CONFIG_ARGS") or "",
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "path": list(sys.path),
        "startup": _startup(),
    }


def _plain(name: str) -> bool:
    return isinstance(getattr(sys.flags, name), (int, bool))


def _startup() -> dict[str, str]:
    """What changes an interpreter before it runs a line: site customisation and `.pth` files."""
    found = {}
    for name in ("sitecustomize", "usercustomize"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            found[name] = str(file)
    for folder in dict.fromkeys([*site.getsitepackages(), site.getusersitepackages()]):
        if os.path.isdir(folder):
            for file in sorted(os.listdir(folder)):
                if file.endswith(".pth"):
                    found[file] = folder
    return found


def packages() -> dict[str, dict[str, Any]]:
    """Every distribution on ``sys.path``, by normalised name.

    Each with its version; with the URL and commit that it was installed from, and whether it is
    editable, where its installer wrote that down (PEP 610); and with the versions that it hides
    further down the path, the sign of a mixed environment.
    """
    found: dict[str, dict[str, Any]] = {}
    for distribution in importlib.metadata.distributions():
        try:
            name = distribution.metadata["Name"]
            version = distribution.version
        except Exception:
            continue  # metadata without a name, or unreadable: no package that pip would list
        if not name:
            continue
        key = re.sub(r"[-_.]+", "-", str(name)).lower()
        if key in found:
            if version != found[key]["version"]:
                found[key].setdefault("hidden", []).append(str(version))
            continue
        found[key] = {"version": str(version), **_origin(distribution)}
    return dict(sorted(found.items()))


def _origin(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    """What `direct_url.json` says; nothing for a package from an index."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except (OSError, ValueError, RecursionError):
        return {"origin": "unreadable"}
    if not isinstance(origin, dict) or not origin:
        return {}
    about: dict[str, Any] = {"url": str(origin.get("url", ""))}
    version_control = origin.get("vcs_info")
    if isinstance(version_control, dict):
        for field in ("vcs", "commit_id", "requested_revision"):
            if version_control.get(field):
                about[field] = str(version_control[field])
    archive = origin.get("archive_info")
    if isinstance(archive, dict) and isinstance(archive.get("hashes"), dict):
        about["hashes"] = {str(k): str(v) for k, v in archive["hashes"].items()}
    folder = origin.get("dir_info")
    if isinstance(folder, dict) and folder.get("editable"):
        about["editable"] = True
    return about


def editable_folders(found: dict[str, dict[str, Any]]) -> dict[str, Path]:
    """Where each editable package lies."""
    folders = {}
    for name, about in found.items():
        parts = urlsplit(about.get("url", ""))
        if about.get("editable") and parts.scheme == "file":
            folders[name] = Path(unquote(parts.path))
    return folders


def path_folders() -> dict[str, Path]:
    """The folders of ``sys.path`` that belong to no installation, as `PYTHONPATH` puts them."""
    own = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"))}
    own |= {os.path.realpath(p) for p in (*site.getsitepackages(), site.getusersitepackages())}
    folders = {}
    for entry in sys.path:
        real = os.path.realpath(entry or ".")
        inside = any(real == root or real.startswith(root + os.sep) for root in own)
        if os.path.isdir(real) and not inside and real != os.path.realpath("."):
            folders[f"path-{Path(real).name}"] = Path(real)
    return folders


def compilers(runner: Runner) -> dict[str, str]:
    """The first telling line of each compiler's `--version`, and what `CC` and `CXX` name."""
    found = {}
    for program in (*_COMPILERS, *filter(None, map(runner.environ.get, ("CC", "CXX")))):
        words = program.split()
        lines = runner.run(*words, "--version").text.splitlines() if words else []
        telling = [line for line in lines if re.search(r"\d+\.\d+", line)]
        if telling:
            # nvcc says its release on a later line than its name.
            found[program] = telling[-1 if program == "nvcc" else 0].strip()[:200]
    return found
