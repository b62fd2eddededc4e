"""The state of repositories."""

import os
import subprocess

from helpers.repositories import git, repository

from fastseed.tools.environment import sources
from fastseed.tools.environment.sources import Repositories


def state(folder):
    """Return the state of a repository, and its difference as text."""
    repositories = Repositories()
    found = repositories._state(folder, "r")
    return {name.removeprefix("r/"): value for name, value in found.items()}, repositories.texts


def changed(found):
    """Return the files that differ."""
    names = (name for name in found if name.startswith("changed/"))
    return {name.removeprefix("changed/"): found[name] for name in names}


def test_a_repository_is_read_once(tmp_path):
    work, repositories = repository(tmp_path / "r", {"a.py": "x = 1\n"}), Repositories()
    (work / "part").mkdir()
    assert repositories._state(work, "working") and repositories._state(work / "part", "mine") == {}


def test_the_files_that_differ_and_a_digest(tmp_path):
    work = repository(tmp_path / "r", {"a.py": "x = 1\n", "b.py": "", "c.py": ""})
    clean, texts = state(work)
    assert len(clean["commit"]) == 40 and changed(clean) == {} == texts and not clean["changes"]
    (work / "a.py").write_text("x = 2\n")
    (work / "b.py").unlink()
    (work / "new.py").write_text("y = 1\n")
    git(work, "add", "new.py")
    (work / "untracked.py").write_text("z = 1\n")
    found, _ = state(work)
    assert changed(found) == {"a.py": "M", "b.py": "D", "new.py": "A"}
    assert found["untracked"].startswith("1 files, ") and "untracked.py" not in str(found)
    digests = {found["changes"], found["untracked"]}
    (work / "a.py").write_text("x = 3\n")
    (work / "untracked.py").write_text("z = 2\n")
    found, _ = state(work / ".")
    assert len(digests | {found["changes"], found["untracked"]}) == 4


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
    assert state(work)[0]["changes"] == "git failed"


def test_a_submodule_is_a_file_that_differs(tmp_path):
    inner, work = repository(tmp_path / "i"), repository(tmp_path / "r")
    git(work, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "in")
    git(work, "commit", "-q", "-m", "in")
    assert changed(state(work)[0]) == {}
    (work / "in" / "a.py").write_text("x = 2\n")
    assert changed(state(work)[0]) == {"in": "M"}


def test_variables_of_git_itself_are_ignored(tmp_path, monkeypatch):
    work, other = repository(tmp_path / "r"), repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    (work / "a.py").write_text("x = 2\n")
    assert changed(state(work)[0]) == {"a.py": "M"}


def test_no_commit_and_no_repository(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True, timeout=30)
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    assert state(tmp_path / "r")[0]["commit"] is None
    (tmp_path / "none").mkdir()
    for folder in ("none", "gone"):
        assert Repositories()._state(tmp_path / folder, "n") == {}


def test_untracked_links_and_large_files_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_MAX_BYTES", 1000)
    work = repository(tmp_path / "r")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    (work / "link").symlink_to(tmp_path / "large")
    os.mkfifo(work / "pipe")
    (work / "large").write_bytes(b"x" * 100_000)
    (work / "small").write_text("x")
    first = state(work)[0]["untracked"]
    assert first.startswith("3 files, ")  # git does not list pipes
    (work / "large").write_bytes(b"y" * 100_000)
    assert state(work)[0]["untracked"] == first
    (work / "small").write_text("y")
    assert state(work)[0]["untracked"] != first
