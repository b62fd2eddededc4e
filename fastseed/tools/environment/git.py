"""The state of a git working folder: commit, remotes, and what is not committed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .commands import Runner
from .redact import MARK, Scrubber

PATCH_LIMIT = 1 << 20  # bytes of a diff that is kept
UNTRACKED_LIMIT = 1000  # files listed
_FILE_LIMIT = 1 << 20  # bytes of an untracked file that is hashed

# Nothing of the folder's configuration runs a program, and nothing is written to the folder.
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"),
    *("-c", "diff.external=", "-c", "color.ui=false", "--no-pager"),
    # A folder of the working tree that looks like a bare repository brings its own configuration.
    *("-c", "safe.bareRepository=explicit"),
)
_ENVIRON = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # No remote is asked for what is missing here: its configuration may name a program.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
}
# Set within hooks, and then about another folder than the one asked about.
_FOREIGN = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_EXTERNAL_DIFF", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_TRACE", "GIT_DIFF_OPTS"),
)
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

_SECRET_FILE = re.compile(
    r"(?i)(^|/)(\.env($|[./])|\.?netrc$|_netrc$|\.pypirc$|\.npmrc$|\.pgpass$|\.my\.cnf$|\.htpasswd$"
    r"|\.git-credentials$|\.dockercfg$|\.s3cfg$|\.boto$|id_(rsa|dsa|ecdsa|ed25519)|\.ssh/|\.aws/"
    r"|\.kube/|kubeconfig|\.docker/config\.json$|[^/]*(secret|credential|passw|vault|token)[^/]*"
    r"\.(json|ya?ml|toml|ini|cfg|conf|txt|env|csv|properties|tfvars)$|service[_-]?account[^/]*\.json$"
    r"|[^/]+\.(env|pem|key|p12|pfx|jks|keystore|kdbx|gpg|asc|ppk|keytab|tfvars|tfstate|ovpn|p8)$)"
)
_PYTHON = (".py", ".pyx", ".pxd", ".pyi", ".jl")
_CODE = frozenset(
    (
        *(*_PYTHON, ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh"),
        *(".hpp", ".rs", ".go", ".js", ".ts", ".java", ".m", ".f90"),
    )
)


class Repositories:
    """Asks git about folders, each repository once, and keeps their scrubbed diffs by name.

    Args:
        runner: runs git.
        scrubber: takes secrets out of what is kept.
        patches: whether diffs are kept as well as described.
    """

    def __init__(self, runner: Runner, scrubber: Scrubber, patches: bool = True) -> None:
        self.patches: dict[str, str] = {}
        self._runner, self._scrubber, self._keep = runner, scrubber, patches
        self._seen: dict[str, dict[str, Any]] = {}
        self._filters: dict[Path, list[str] | None] = {}
        for name in _FOREIGN:
            runner.environ.pop(name, None)

    def state(self, folder: Path, name: str) -> dict[str, Any] | None:
        """The repository that ``folder`` lies in; None where it lies in none, or git is missing.

        ``name`` becomes part of the name of its patch.
        """
        if not folder.is_dir():
            return None
        top = self._git(folder, "rev-parse", "--show-toplevel")
        if not top:
            return None
        top = top.rstrip("\n")
        if top not in self._seen:
            self._seen[top] = self._describe(Path(top), name)
        return self._seen[top]

    def study(self, folders: Iterable[Path]) -> None:
        """Learn the secrets in the remotes of all folders, before any diff is scrubbed."""
        for folder in folders:
            if folder.is_dir():
                self._scrubber.study(self._git(folder, "remote", "-v") or "")

    def _git(self, folder: Path, *arguments: str) -> str | None:
        answer = self._runner.run("git", *_SAFE, *arguments, cwd=folder, environ=_ENVIRON)
        if "ended with" in answer.problem:
            self._runner.problems.pop("git", None)  # no repository, no commit yet: answers, too
        return None if answer.out is None else answer.out.decode("utf-8", "surrogateescape")

    def _describe(self, top: Path, name: str) -> dict[str, Any]:
        commit = (self._git(top, "rev-parse", "HEAD") or "").strip() or None
        remotes = {}
        for line in (self._git(top, "remote", "-v") or "").splitlines():
            remote, _, rest = line.partition("\t")
            remotes[remote] = self._scrubber.strict(rest.rpartition(" ")[0])
        untracked = (
            self._git(top, "ls-files", "-z", "--others", "--exclude-standard") or ""
        ).split("\0")
        untracked = [path for path in untracked if path]
        return {
            "root": str(top),
            "commit": commit,
            "branch": (self._git(top, "symbolic-ref", "-q", "--short", "HEAD") or "").strip()
            or None,
            "describe": (self._git(top, "describe", "--always", "--tags") or "").strip() or None,
            "remotes": remotes,
            "submodules": self._submodules(top),
            "diff": self._diff(top, name, commit or _EMPTY_TREE),
            "untracked": {
                path: self._hash(top / path) for path in sorted(untracked)[:UNTRACKED_LIMIT]
            },
            "untracked_count": len(untracked),
        }

    def _submodules(self, top: Path) -> dict[str, str]:
        if not (top / ".gitmodules").is_file():
            return {}
        lines = (self._git(top, "submodule", "status") or "").splitlines()
        found = ([*line[1:].split(), "", ""] for line in lines)
        return {
            words[1]: words[0] + ("-dirty" if self._is_dirty(top / words[1]) else "")
            for words in found
            if words[1]
        }

    def _is_dirty(self, submodule: Path) -> bool:
        return (submodule / ".git").exists() and bool(self._changes(submodule, "HEAD"))

    def _changes(self, top: Path, base: str, *options: str) -> str | None:
        """What `git diff` says of the working tree; None where git cannot say, or must not.

        To compare, git passes files through the filters that the repository's attributes ask for
        (gitattributes(5)), and these are programs that its own configuration names: they are left
        out. So are changes within submodules, which have filters of their own.
        """
        drivers = self._drivers(top)
        if drivers is None:
            return None
        no_filters = []
        for driver in drivers:
            for key, value in (("clean", ""), ("smudge", ""), ("process", ""), ("required", "no")):
                no_filters += ["-c", f"filter.{driver}.{key}={value}"]
        plain = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
        return self._git(top, *no_filters, "diff", *plain, *options, base, "--")

    def _drivers(self, top: Path) -> list[str] | None:
        """The filters that are not the user's or the system's own; None if they have no names."""
        if top not in self._filters:
            listed = self._git(top, "config", "-z", "--show-scope", "--name-only", "--list")
            words = (listed or "").split("\0")
            keys = zip(words[::2], words[1::2], strict=False)
            own = {key for scope, key in keys if scope in ("local", "worktree")}
            found = {key[7:].rpartition(".")[0] for key in own if key.startswith("filter.")}
            strange = listed is None or any("=" in driver or "\n" in driver for driver in found)
            self._filters[top] = None if strange else sorted(found)
        return self._filters[top]

    def _diff(self, top: Path, name: str, base: str) -> dict[str, Any] | None:
        """What is not committed: None for nothing; a description, and the text in ``patches``."""
        text = self._changes(top, base, "--submodule=short")
        if text is None:
            return {"problem": "git could not tell"}
        if not text:
            return None
        stat = self._changes(top, base, "--numstat") or ""
        files = [line.split("\t") for line in stat.splitlines()]
        about: dict[str, Any] = {
            "files": {line[2]: f"+{line[0]} -{line[1]}" for line in files if len(line) == 3}
        }
        if len(text) > PATCH_LIMIT:
            return {**about, "problem": f"longer than {PATCH_LIMIT >> 20} MiB: not kept"}
        before = self._scrubber.removed
        clean = scrub_patch(text, self._scrubber)
        about["redactions"] = self._scrubber.removed - before
        about["sha256"] = hashlib.sha256(clean.encode("utf-8", "surrogateescape")).hexdigest()
        if self._keep:
            about["patch"] = self._store(name, clean)
        return about

    def _store(self, name: str, text: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", self._scrubber.strict(name)).strip("-")[:60] or "x"
        file, number = f"{stem}.diff", 2
        while file in self.patches:
            file, number = f"{stem}-{number}.diff", number + 1
        self.patches[file] = text
        return file

    def _hash(self, path: Path) -> str:
        """The hash of an untracked source file, scrubbed; of anything else its size at most.

        A data file may be a secret as a whole, and a short one could be guessed from its hash.
        """
        try:
            status = os.lstat(path)
            if path.suffix not in _CODE or path.is_symlink() or status.st_size > _FILE_LIMIT:
                return f"{status.st_size} bytes"
            text = path.read_bytes().decode("utf-8", "surrogateescape")
        except OSError:
            return "unreadable"
        clean = self._scrubber.source(text, _comment(path.suffix), diff=False).encode(
            "utf-8", "surrogateescape"
        )
        return "sha256:" + hashlib.sha256(clean).hexdigest()


def scrub_patch(text: str, scrubber: Scrubber) -> str:
    """A diff without secrets, file by file; a file named like a secret loses its content."""
    parts = re.split(r"(?m)^(?=diff --git )", text)
    return "".join(_scrub_file(part, scrubber) for part in parts if part)


def _scrub_file(part: str, scrubber: Scrubber) -> str:
    head, mark, body = part.partition("\n@@ ")
    names = re.findall(r"(?m)^(?:---|\+\+\+|rename \w+|diff --git) \"?(.+?)\"?$", head)
    paths = [
        path.removeprefix("a/").removeprefix("b/") for name in names for path in name.split(" b/")
    ]
    if any(_SECRET_FILE.search(path) for path in paths):
        scrubber.removed += 1
        return scrubber.text(head) + f"\n{MARK}: a file whose name tells of secrets\n"
    # Of a file that was renamed both names have to tell of code: other text loses more.
    kinds = {_comment(Path(path).suffix) for path in paths if path != "/dev/null"}
    comment = kinds.pop() if len(kinds) == 1 else ""
    # `index` lines hold hashes of the content, from which a short secret could be guessed.
    head = re.sub(r"(?m)^index [0-9a-f]+\.\.[0-9a-f]+", "index 0000000..0000000", head)
    if not mark:
        return scrubber.text(head)
    subproject = re.findall(r"(?m)^[-+]Subproject commit [0-9a-f]{40}$", body)
    if subproject:
        return scrubber.text(head) + mark + "-1 +1 @@\n" + "\n".join(subproject) + "\n"
    body = scrubber.source(f"@@ {body}", comment, diff=True)
    return scrubber.text(head) + "\n" + body


def _comment(suffix: str) -> str:
    """What begins a comment in code of this suffix; "" for what is no code."""
    return "#" if suffix in _PYTHON else "//" if suffix in _CODE else ""
