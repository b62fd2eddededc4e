"""The state of repositories."""

from __future__ import annotations

import os
import subprocess

from helpers.repositories import git, repository

from fastseed.tools.environment.commands import Runner
from fastseed.tools.environment.git import Repositories


def state(folder):
    """Return the state of a repository, and its difference as text."""
    repositories = Repositories(Runner(os.environ))
    return repositories.state(folder, "r"), repositories.texts


def test_the_files_that_differ_and_a_digest(tmp_path):
    work = repository(tmp_path / "r", {"a.py": "x = 1\n", "b.py": "", "c.py": ""})
    clean, texts = state(work)
    assert len(clean["commit"]) == 40 and clean["files"] == {} == texts and clean["diff"] is None
    (work / "a.py").write_text("x = 2\n")
    (work / "b.py").unlink()
    (work / "new.py").write_text("y = 1\n")
    git(work, "add", "new.py")
    (work / "untracked.py").write_text("z = 1\n")
    found, _ = state(work)
    assert found["files"] == {"a.py": "M", "b.py": "D", "new.py": "A"}
    assert found["untracked"]["count"] == 1 and "untracked.py" not in str(found)
    digests = {found["diff"], found["untracked"]["contents"]}
    (work / "a.py").write_text("x = 3\n")
    (work / "untracked.py").write_text("z = 2\n")
    found, _ = state(work / ".")
    assert len(digests | {found["diff"], found["untracked"]["contents"]}) == 4


def test_a_patch_applies(tmp_path):
    work = repository(tmp_path / "r", {"a.py": "x = 1\n", "data": "\0"})
    (work / "a.py").write_text("x = 2\n")
    (work / "data").write_bytes(b"\0\xff")
    _, patches = state(work)
    (tmp_path / "p").write_text(patches["r"], errors="surrogateescape")
    git(work, "checkout", "-q", ".")
    git(work, "apply", str(tmp_path / "p"))
    assert (work / "a.py").read_text() == "x = 2\n" and (work / "data").read_bytes() == b"\0\xff"


def test_a_failing_filter_is_not_a_clean_repository(tmp_path):
    work = repository(tmp_path / "r")
    git(work, "config", "filter.y.clean", "false")
    git(work, "config", "filter.y.required", "true")
    (work / ".gitattributes").write_text("*.py filter=y\n")
    (work / "a.py").write_text("x = 2\n")
    assert state(work)[0]["diff"] == "git failed"


def test_a_submodule_is_a_file_that_differs(tmp_path):
    inner, work = repository(tmp_path / "i"), repository(tmp_path / "r")
    git(work, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "in")
    git(work, "commit", "-q", "-m", "in")
    assert state(work)[0]["files"] == {}
    (work / "in" / "a.py").write_text("x = 2\n")
    assert state(work)[0]["files"] == {"in": "M"}


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
    runner = Runner(os.environ)
    (tmp_path / "none").mkdir()
    for folder in ("none", "gone"):
        assert Repositories(runner).state(tmp_path / folder, "n") == {}
    assert runner.problems == {}
