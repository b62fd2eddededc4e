"""The state of git repositories: the commit, the files that differ, and a hash of the difference.

git runs no program that a repository's configuration names (filter, textconv, external diff, hook,
monitor, pager, fetch), since that may come from another author.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .commands import Runner
from .keyed_hash import Hasher

_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"),
    *("-c", "diff.external=", "-c", "color.ui=false", "--no-pager"),
    # A folder of the working tree that looks like a bare repository has its own configuration.
    *("-c", "safe.bareRepository=explicit"),
)
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",  # the folder is not written to
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",  # the configuration of a remote may name a program
    "GIT_ALLOW_PROTOCOL": "",
}
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--submodule=short")
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
        if top and top not in self._known:
            self._known[top] = {}
            self._known[top] = self._describe(Path(top), name)
        return self._known.get(top, {})

    def _git(self, folder: Path, *arguments: str) -> str | None:
        found = self._runner.run("git", *_SAFE, *arguments, cwd=folder, environment=_ENVIRONMENT)
        if "ended with" in self._runner.problems.get("git", ""):
            del self._runner.problems["git"]  # no repository, or no commit yet
        return None if found.data is None else found.text

    def _describe(self, top: Path, name: str) -> dict[str, Any]:
        commit = (self._git(top, "rev-parse", "-q", "--verify", "HEAD") or "").strip() or None
        others = self._git(top, "ls-files", "-z", "--others", "--exclude-standard") or ""
        untracked = sorted(filter(None, others.split("\0")))
        return {
            "root": self._hasher.path(top),
            "commit": commit,
            **self._difference(top, name, commit or _EMPTY_TREE),
            "untracked_count": len(untracked),
            "untracked_hash": self._contents(top, untracked),
            "submodules": self._submodules(top, name),
        }

    def _difference(self, top: Path, name: str, base: str) -> dict[str, Any]:
        overrides = self._no_filters(top)
        command = (*overrides, *_DIFF) if overrides is not None else None
        text = (
            self._git(top, *command, "--binary" if self._keep else "--full-index", base, "--")
            if command
            else None
        )
        if command is None or text is None:
            return {"files": {}, "diff_hash": None, "problem": "git could not compare the files"}
        if not text:
            return {"files": {}, "diff_hash": None}
        if self._keep:
            self.patches[name] = text
        words = self._git(top, *command, "--name-status", "--no-renames", "-z", base, "--") or ""
        listed = words.split("\0")
        files = dict(zip(listed[1::2], listed[::2], strict=False))
        return {"files": files, "diff_hash": self._hasher("diff", text)}

    def _no_filters(self, top: Path) -> list[str] | None:
        """Return options that switch off the filters which the repository configures.

        git passes files through filters to compare them (gitattributes(5)). None if a filter's name
        cannot be written as an option: then nothing is compared.
        """
        listed = self._git(top, "config", "-z", "--show-scope", "--name-only", "--list")
        if listed is None:
            return None
        words = listed.split("\0")
        pairs = zip(words[::2], words[1::2], strict=False)
        keys = {key for scope, key in pairs if scope in ("local", "worktree")}
        drivers = {key[7:].rpartition(".")[0] for key in keys if key.startswith("filter.")}
        if any("=" in driver or "\n" in driver for driver in drivers):
            return None
        options = []
        for driver in sorted(drivers):
            for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "no")):
                options += ["-c", f"filter.{driver}.{key}={value}"]
        return options

    def _contents(self, top: Path, names: list[str]) -> str:
        """Return a hash of the names and contents (the size of what is large or no file)."""
        found = []
        for name in names[:_MOST_FILES]:
            path = top / name
            try:
                size = os.lstat(path).st_size
                small = path.is_file() and not path.is_symlink() and size <= _LARGEST
                found.append(f"{name} {self._hasher('file', path.read_bytes()) if small else size}")
            except OSError:
                found.append(name)
        return self._hasher("untracked", "\n".join(found))

    def _submodules(self, top: Path, name: str) -> Mapping[str, Any]:
        if not (top / ".gitmodules").is_file():
            return {}
        lines = (self._git(top, "ls-files", "--stage", "-z") or "").split("\0")
        paths = [line.partition("\t")[2] for line in lines if line.startswith("160000")]
        inner = {path: top / path for path in paths if (top / path / ".git").exists()}
        return {path: self.state(folder, f"{name}/{path}") for path, folder in inner.items()}
