"""The packages around this process: of Python, conda and Debian, and environment modules."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..._utils import StateDict
from .commands import Runner
from .variables import REDACTED

_MODULE = re.compile(r"[\w.+-]+(/[\w.+-]+)*/v?\d[\w.+-]*")  # gcc/12.2


def packages() -> dict[str, str]:
    """Return the version of every distribution on ``sys.path``, by normalised name.

    The installer's record (PEP 610) adds ``editable`` or the commit that it was installed from. A
    second version of a name later on the path is a sign of a mixed environment, and is added too.
    """
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name, version = distribution.metadata["Name"], str(distribution.version)
        if not name:  # damaged metadata
            continue
        origin = _origin(distribution)
        commit = str(origin.get("vcs_info", {}).get("commit_id"))
        if re.fullmatch(r"[0-9a-f]{7,64}", commit):
            version += f", commit {commit}"
        if origin.get("dir_info", {}).get("editable"):
            version += ", editable"
        key = re.sub(r"[-_.]+", "-", str(name)).lower()
        if key not in found:
            found[key] = version
        elif version != found[key]:
            found[key] += f", hides {version}"
    return dict(sorted(found.items()))


def _origin(distribution: importlib.metadata.Distribution) -> StateDict:
    try:
        return dict(json.loads(distribution.read_text("direct_url.json") or "{}"))
    except (OSError, ValueError):
        return {}


def source_folders() -> dict[str, Path]:
    """Return the folders of editable packages, and those of `PYTHONPATH` (path-1, …)."""
    folders = {}
    for distribution in importlib.metadata.distributions():
        origin = _origin(distribution)
        url = urlsplit(str(origin.get("url", "")))
        if url.scheme == "file" and origin.get("dir_info", {}).get("editable"):
            folders[str(distribution.metadata["Name"])] = Path(unquote(url.path))
    entries = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {**folders, **{f"path-{i}": Path(entry) for i, entry in enumerate(entries, 1)}}


def modules(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the loaded environment modules, as the shell records them: name -> version."""
    loaded = [name for name in environment.get("LOADEDMODULES", "").split(":") if name]
    plain = [name if _MODULE.fullmatch(name) else REDACTED for name in loaded]
    return {name.rpartition("/")[0] or name: name for name in plain}


def conda(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the packages of this interpreter's conda environment, from conda's records."""
    for prefix in filter(None, [sys.prefix, environment.get("CONDA_PREFIX")]):
        names = [path.stem for path in sorted(Path(prefix, "conda-meta").glob("*-*-*.json"))]
        if names:  # name-version-build
            return {name.rsplit("-", 2)[0]: name for name in names}
    return {}


def apt(runner: Runner) -> dict[str, str]:
    """Return the versions of the installed Debian packages; {} without dpkg."""
    _, out, _ = runner.run("dpkg-query -W -f '${Package} ${Version}\\n'")
    lines = (line.partition(" ") for line in out.splitlines())
    return {name: version for name, _, version in lines if version}
