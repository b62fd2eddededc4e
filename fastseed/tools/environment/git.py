"""The state of git repositories: the commit, the changed files, and a hash of the changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .commands import Runner
from .keyed_hash import Hasher

_OPTIONS = ("-c", "core.quotePath=false", "-c", "color.ui=false", "--no-pager")
# Nothing is written or fetched.
_ENVIRONMENT = dict.fromkeys(("GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT"), "0")
_ENVIRONMENT["GIT_NO_LAZY_FETCH"] = "1"
_DIFF = ("diff", "--no-ext-diff", "--no-textconv")
_MOST_FILES, _LARGEST = 1000, 1 << 20  # untracked files that are read, bytes of one
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class Repositories:
    """Reads the state of repositories, each once.

    Args:
        runner: runs git.
        hasher: hashes paths and differences.
        patches: also keep the differences as text in ``patches``, by name.
    """

    def __init__(self, runner: Runner, hasher: Hasher, patches: bool) -> None:
        self.patches: dict[str, str] = {}
        self._runner, self._hasher, self._keep = runner, hasher, patches
        self._known: dict[str, dict[str, Any]] = {}
        for name in list(runner.environment):  # set within hooks, and about another repository
            if name.startswith("GIT_") and not name.startswith("GIT_CONFIG"):
                del runner.environment[name]

    def state(self, folder: Path, name: str) -> dict[str, Any]:
        """Return the state of the repository of ``folder``; {} without a repository or git."""
        if not folder.is_dir():
            return {}
        top = (self._git(folder, "rev-parse", "--show-toplevel") or "").removesuffix("\n")
        if not top:
            return {}
        if top in self._known:
            return {"repository": self._known[top]["name"]}
        state = self._known[top] = {"name": name, **self._describe(Path(top), name)}
        return state

    def _git(self, folder: Path, *arguments: str) -> str | None:
        found = self._runner.run("git", *_OPTIONS, *arguments, cwd=folder, environment=_ENVIRONMENT)
        if "ended with" in self._runner.problems.get("git", ""):
            del self._runner.problems["git"]  # no repository, or no commit yet
        return found

    def _describe(self, top: Path, name: str) -> dict[str, Any]:
        commit = (self._git(top, "rev-parse", "-q", "--verify", "HEAD") or "").strip() or None
        base = commit or _EMPTY_TREE
        text = self._git(top, *_DIFF, "--binary", base, "--")
        if text and self._keep:
            self.patches[name] = text
        difference = "git failed" if text is None else text and self._hasher("diff", text)
        names = self._git(top, *_DIFF, "--name-status", "--no-renames", "-z", base, "--") or ""
        listed = names.split("\0")
        others = self._git(top, "ls-files", "-z", "--others", "--exclude-standard") or ""
        untracked = sorted(filter(None, others.split("\0")))
        return {
            "root": self._hasher.path(top),
            "commit": commit,
            "files": dict(zip(listed[1::2], listed[::2], strict=False)),
            "diff_hash": difference or None,
            "untracked_count": len(untracked),
            "untracked_hash": self._contents(top, untracked),
        }

    def _contents(self, top: Path, names: list[str]) -> str:
        """Return a hash of the names and contents (the size of what is large or no file)."""
        found = []
        for name in names[:_MOST_FILES]:
            path = top / name
            try:
                size = os.lstat(path).st_size
                small = path.is_file() and size <= _LARGEST
                found.append(f"{name} {self._hasher('file', path.read_bytes()) if small else size}")
            except OSError:
                found.append(name)
        return self._hasher("untracked", "\n".join(found))
