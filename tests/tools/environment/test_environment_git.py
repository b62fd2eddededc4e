"""The state of repositories; a repository that is read runs no program of its own."""

from __future__ import annotations

import subprocess

from helpers.repositories import git, repository

from fastseed.tools.environment.commands import Runner
from fastseed.tools.environment.git import Repositories
from fastseed.tools.environment.keyed_hash import Hasher


def state(folder, patches=False):
    """Return the state of a repository, and the patches."""
    repositories = Repositories(Runner(), Hasher(bytes(32)), patches)
    return repositories.state(folder, "r"), repositories.patches


def test_the_files_that_differ_and_a_hash(tmp_path):
    work = repository(tmp_path / "r", {"a.py": "x = 1\n", "b.py": "", "c.py": ""})
    clean, _ = state(work)
    assert len(clean["commit"]) == 40 and clean["files"] == {} and clean["diff_hash"] is None
    (work / "a.py").write_text("x = 2\n")
    (work / "b.py").unlink()
    (work / "new.py").write_text("y = 1\n")
    git(work, "add", "new.py")
    (work / "untracked.py").write_text("z = 1\n")
    found, patches = state(work)
    assert found["files"] == {"a.py": "M", "b.py": "D", "new.py": "A"} and patches == {}
    assert found["untracked_count"] == 1 and "untracked.py" not in str(found)
    hashes = {found["diff_hash"], found["untracked_hash"]}
    (work / "a.py").write_text("x = 3\n")
    (work / "untracked.py").write_text("z = 2\n")
    found, _ = state(work / ".")
    hashes |= {found["diff_hash"], found["untracked_hash"]}
    assert len(hashes) == 4 and all(one.startswith("hmac:") for one in hashes)


def test_a_patch_applies(tmp_path):
    work = repository(tmp_path / "r", {"a.py": "x = 1\n", "data": "\0"})
    (work / "a.py").write_text("x = 2\n")
    (work / "data").write_bytes(b"\0\xff")
    _, patches = state(work, patches=True)
    (tmp_path / "p").write_text(patches["r"], errors="surrogateescape")
    git(work, "checkout", "-q", ".")
    git(work, "apply", str(tmp_path / "p"))
    assert (work / "a.py").read_text() == "x = 2\n" and (work / "data").read_bytes() == b"\0\xff"


def test_a_repository_runs_no_program_of_its_own(tmp_path):
    work = repository(tmp_path / "r")
    mark, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f'#!/bin/sh\ntouch {mark}\ncat "$2" 2>/dev/null\n')
    program.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "fsmonitor-watchman", "query-watchman"):
        (hooks / name).symlink_to(program)
    for name in (
        "core.fsmonitor",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "core.pager",
    ):
        git(work, "config", name, str(program))
    git(work, "config", "core.hooksPath", str(hooks))
    for name in ("clean", "smudge", "process"):
        git(work, "config", f"filter.y.{name}", str(program))
    git(work, "config", "filter.y.required", "true")
    (work / ".gitattributes").write_text("*.py diff=x filter=y\n")
    (work / "a.py").write_text("x = 2\n")
    for patches in (False, True):
        assert state(work, patches)[0]["files"] == {"a.py": "M"}
    assert not mark.exists()


def test_a_filter_whose_name_cannot_be_overridden_is_not_run(tmp_path):
    work, mark = repository(tmp_path / "r"), tmp_path / "ran"
    git(work, "config", "filter.a=b.clean", f"touch {mark}; cat")
    (work / ".gitattributes").write_text("*.py filter=a=b\n")
    (work / "a.py").write_text("x = 2\n")
    assert state(work)[0]["problem"] == "git could not compare the files" and not mark.exists()


def test_a_submodule_has_a_state_and_runs_no_program(tmp_path):
    inner, work, mark = repository(tmp_path / "i"), repository(tmp_path / "r"), tmp_path / "ran"
    git(work, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "in")
    git(work, "commit", "-q", "-m", "in")
    git(work / "in", "config", "filter.y.clean", f"touch {mark}; cat")
    assert state(work)[0]["submodules"]["in"]["files"] == {}
    (work / "in" / "a.py").write_text("x = 2\n")
    info = work / ".git" / "modules" / "in" / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text("*.py filter=y\n")
    found, _ = state(work)
    assert found["files"] == {} and found["submodules"]["in"]["files"] == {"a.py": "M"}
    assert not mark.exists()


def test_missing_objects_are_not_fetched(tmp_path):
    """The remote of a partial clone may name the program that answers."""
    work, mark = repository(tmp_path / "r"), tmp_path / "ran"
    blob = git(work, "rev-parse", "HEAD:a.py").strip()
    for name, value in {
        "remote.origin.url": str(tmp_path),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": f"touch {mark}; false",
        "extensions.partialClone": "origin",
        "core.repositoryformatversion": "1",
        "protocol.file.allow": "always",
    }.items():
        git(work, "config", name, value)
    (work / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (work / "a.py").write_text("x = 2\n")
    state(work)
    assert not mark.exists()


def test_variables_of_git_itself_are_ignored(tmp_path, monkeypatch):
    work, other = repository(tmp_path / "r"), repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    (work / "a.py").write_text("x = 2\n")
    assert state(work)[0]["files"] == {"a.py": "M"}


def test_no_commit_and_no_repository(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True, timeout=30)
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    assert state(tmp_path / "r")[0]["commit"] is None
    runner = Runner()
    (tmp_path / "none").mkdir()
    for folder in ("none", "gone"):
        assert Repositories(runner, Hasher(bytes(32)), False).state(tmp_path / folder, "n") == {}
    assert runner.problems == {}
