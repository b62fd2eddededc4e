"""The state of git repositories: the commit, the changed files, and a digest of the changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ..._utils import StateDict
from .commands import Runner

_OPTIONS = ("-c", "core.quotePath=false", "-c", "color.ui=false", "--no-pager")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv")
_MOST_FILES, _LARGEST = 1000, 1 << 20  # untracked files that are read, bytes of one
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class Repositories:
    """Reads the state of repositories, each once; ``texts`` has their differences by name."""

    def __init__(self, runner: Runner) -> None:
        self.texts: dict[str, str] = {}
        self._runner = runner
        self._known: dict[str, str] = {}

    def state(self, folder: Path, name: str) -> StateDict:
        """Return the state of the repository of ``folder``; {} without a repository or git."""
        top = folder.is_dir() and self._git(folder, "rev-parse", "--show-toplevel")
        if not top:
            return {}
        top = top.removesuffix("\n")
        if top in self._known:
            return {"repository": self._known[top]}
        self._known[top] = name
        return self._describe(Path(top), name)

    def _git(self, folder: Path, *arguments: str) -> str | None:
        code, out, _ = self._runner.run(["git", *_OPTIONS, *arguments], folder)
        return out if code == 0 else None  # no repository, or no commit yet

    def _describe(self, top: Path, name: str) -> StateDict:
        commit = (self._git(top, "rev-parse", "-q", "--verify", "HEAD") or "").strip() or None
        base = commit or _EMPTY_TREE
        text = self._git(top, *_DIFF, "--binary", base, "--")
        if text:
            self.texts[name] = text
        names = self._git(top, *_DIFF, "--name-status", "--no-renames", "-z", base, "--") or ""
        listed = names.split("\0")
        others = self._git(top, "ls-files", "-z", "--others", "--exclude-standard") or ""
        untracked = sorted(filter(None, others.split("\0")))
        return {
            "commit": commit,
            "files": dict(zip(listed[1::2], listed[::2], strict=False)),
            "diff": "git failed" if text is None else _digest(text) if text else None,
            "untracked": {"count": len(untracked), "contents": _contents(top, untracked)},
        }


def _contents(top: Path, names: list[str]) -> str:
    """Return a digest of the names and contents (the size of what is large or no file)."""
    found = []
    for name in names[:_MOST_FILES]:
        path = top / name
        try:
            size = os.lstat(path).st_size
            small = path.is_file() and size <= _LARGEST
            what = hashlib.sha256(path.read_bytes()).hexdigest() if small else size
            found.append(f"{name} {what}")
        except OSError:
            found.append(name)
    return _digest("\n".join(found))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
