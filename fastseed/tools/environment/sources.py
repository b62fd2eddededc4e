"""What runs: packages, loaded modules, Debian packages, git repositories; and the variables."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..._utils import JSON, StateDict, regular_file
from .machine import run

_MODULE = re.compile(r"[\w.+-]+(/[\w.+-]+)*/v?\d[\w.+-]*")  # gcc/12.2
_OPTIONS = ("-c", "core.quotePath=false", "-c", "color.ui=false", "--no-pager")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv")
_MAX_FILES, _MAX_BYTES = 1000, 1 << 20  # untracked files that are read, bytes of each
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

REDACTED = "(redacted)"

COMPUTING = (
    r"((CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|NCCL|OMP|GOMP|KMP|MKL|DNNL|ONEDNN|OPENBLAS|BLIS|VECLIB"
    r"|NUMEXPR|NUMBA|TBB|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|XLA|JAX|HIP|ROCBLAS"
    r"|HIPBLASLT|MIOPEN|RCCL|NVTE|NPY|FLASH_ATTENTION|FASTSEED)_.*|ATEN_CPU_CAPABILITY"
    r"|TF_(DETERMINISTIC|CUDNN|ENABLE|NUM|XLA)\w*|PYTHONHASHSEED)"
)
"""Names of the variables that libraries compute by."""

_OTHERS = (
    r"(LD|PYTHON|HF|TRANSFORMERS|TOKENIZERS|TORCHELASTIC|HSA|ROCR)_?.*|LANG|LC_.*|TZ"
    r"|SOURCE_DATE_EPOCH|(\w+_)?(RANK|WORLD_SIZE)|NNODES|NPROC_PER_NODE|MASTER_PORT"
    r"|SLURM_(JOB_ID|PROCID|LOCALID|NODEID|NTASKS|STEP_NUM_TASKS|NNODES|CPUS_PER_TASK|GPUS_ON_NODE)"
)
_STORED = re.compile(f"{COMPUTING}|{_OTHERS}")
# The names that Django's error pages hide, and more.
_SECRET = re.compile(
    r"API|AUTH|TOKEN(?!IZERS)|KEY|SECRET|PASS|PWD|CRED|SIGN|JWT|COOKIE|LICEN", re.I
)
# Words, numbers, paths and lists of these: no sentence, and no URL with a user or a query.
_SETTING = re.compile(r"[\w.,:;=+^%{}()*/-]{0,400}", re.ASCII)


def packages() -> dict[str, JSON]:
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name, version = distribution.metadata["Name"], str(distribution.version)
        if not name:  # damaged metadata
            continue
        origin = _origin(distribution)  # the installer's record (PEP 610)
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


def modules(environment: Mapping[str, str]) -> dict[str, JSON]:
    loaded = [name for name in environment.get("LOADEDMODULES", "").split(":") if name]
    plain = [name if _MODULE.fullmatch(name) else REDACTED for name in loaded]
    return {name.rpartition("/")[0] or name: name for name in plain}


def apt() -> dict[str, JSON]:
    out = run(["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"]) or ""
    lines = (line.partition(" ") for line in out.splitlines())
    return {name: version for name, _, version in lines if version}


def variables(environment: Mapping[str, str]) -> dict[str, JSON]:
    """Return every variable by name, with its value only if name and value are of a setting."""
    return {
        name: value
        if _STORED.fullmatch(name) and not _SECRET.search(name) and _SETTING.fullmatch(value)
        else REDACTED
        for name, value in sorted(environment.items())
    }


class Repositories:
    """Reads the state of repositories, each once; ``texts`` has their changes by name."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._known: set[str] = set()

    def all_states(self) -> dict[str, JSON]:
        """Return the states of the working repository and of editable packages."""
        found = self._state(Path.cwd(), "working")
        for distribution in importlib.metadata.distributions():
            origin = _origin(distribution)
            url = urlsplit(str(origin.get("url", "")))
            if url.scheme == "file" and origin.get("dir_info", {}).get("editable"):
                folder = Path(unquote(url.path))
                found |= self._state(folder, str(distribution.metadata["Name"]))
        return found

    def _state(self, folder: Path, name: str) -> dict[str, JSON]:
        """Return commit, changed files and digests; {} without a repository, or for a known one."""
        top = _git(folder, "rev-parse", "--show-toplevel") if folder.is_dir() else None
        if not top or top in self._known:
            return {}
        self._known.add(top)
        where = Path(top.removesuffix("\n"))
        commit = (_git(where, "rev-parse", "-q", "--verify", "HEAD") or "").strip() or None
        base = commit or _EMPTY_TREE
        text = _git(where, *_DIFF, "--binary", base, "--")
        if text:
            self.texts[name] = text
        names = _git(where, *_DIFF, "--name-status", "--no-renames", "-z", base, "--") or ""
        listed = names.split("\0")
        others = _git(where, "ls-files", "-z", "--others", "--exclude-standard") or ""
        untracked = sorted(filter(None, others.split("\0")))
        digest = "git failed" if text is None else _digest(text) if text else None
        return {
            f"{name}/commit": commit,
            **{f"{name}/changed/{file}": how for how, file in zip(*[iter(listed)] * 2)},  # noqa: B905
            f"{name}/changes": digest,
            f"{name}/untracked": f"{len(untracked)} files, {_contents(where, untracked)}",
        }


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None without a repository, or without a commit."""
    return run(["git", *_OPTIONS, *arguments], folder)


def _contents(top: Path, names: list[str]) -> str:
    found = []
    for name in names[:_MAX_FILES]:
        path = top / name
        what: object = os.lstat(path).st_size if os.path.lexists(path) else "gone"
        with contextlib.suppress(OSError, ValueError):
            what = hashlib.sha256(regular_file.read(path, _MAX_BYTES)).hexdigest()
        found.append(f"{name} {what}")
    return _digest("\n".join(found))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
