"""What a capture asks git, and that the repository asked about runs nothing."""

from __future__ import annotations

import subprocess

from helpers.repositories import repository

from fastseed.tools.environment import git
from fastseed.tools.environment.commands import Runner
from fastseed.tools.environment.redact import Scrubber


def test_the_uncommitted_diff_is_kept_and_applies(tmp_path):
    run = repository(tmp_path / "r")
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    (tmp_path / "r" / "new.py").write_text("y = 1\n")
    (tmp_path / "r" / "data.txt").write_text("pin 1234")
    repositories = git.Repositories(Runner(), Scrubber())
    state = repositories.state(tmp_path / "r", "my/name")
    assert state["branch"] == "main" and len(state["commit"]) == 40
    assert state["diff"]["files"] == {"a.py": "+1 -1"}
    assert state["untracked"]["new.py"].startswith("sha256:")
    assert state["untracked"]["data.txt"] == "8 bytes"  # its hash would let it be guessed
    patch = tmp_path / "p.diff"
    patch.write_text(repositories.patches[state["diff"]["patch"]])
    run("checkout", "-q", "a.py")
    run("apply", str(patch))
    assert (tmp_path / "r" / "a.py").read_text() == "x = 2\n"


def test_a_repository_runs_nothing_of_its_own(tmp_path):
    """A folder's configuration may name programs; asking about it must not run them."""
    run = repository(tmp_path / "r")
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\ntouch {mark}\ncat "$2" 2>/dev/null\n')
    program.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "diff.x.textconv", "diff.x.command"):
        run("config", name, str(program))
    for name in ("clean", "smudge", "process"):
        run("config", f"filter.y.{name}", str(program))
    run("config", "filter.y.required", "true")
    (tmp_path / "r" / ".gitattributes").write_text("*.py diff=x filter=y\n")
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    state = git.Repositories(Runner(), Scrubber()).state(tmp_path / "r", "r")
    assert state["diff"]["files"] == {"a.py": "+1 -1"} and not mark.exists()


def test_a_filter_whose_name_cannot_be_passed_on_is_not_run(tmp_path):
    run = repository(tmp_path / "r")
    mark = tmp_path / "ran"
    run("config", "filter.a=b.clean", f"touch {mark}; cat")
    (tmp_path / "r" / ".gitattributes").write_text("*.py filter=a=b\n")
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    state = git.Repositories(Runner(), Scrubber()).state(tmp_path / "r", "r")
    assert state["diff"] == {"problem": "git could not tell"} and not mark.exists()


def test_a_submodule_runs_nothing_of_its_own_and_is_told_when_changed(tmp_path):
    repository(tmp_path / "inner")
    run = repository(tmp_path / "r")
    run("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "inner"), "in")
    run("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "in")
    mark = tmp_path / "ran"
    run("-C", "in", "config", "filter.y.clean", f"touch {mark}; cat")

    def submodules():
        state = git.Repositories(Runner(), Scrubber()).state(tmp_path / "r", "r")
        assert state["diff"] is None
        return state["submodules"]["in"]

    commit = submodules()
    (tmp_path / "r" / "in" / "a.py").write_text("x = 2\n")
    info = tmp_path / "r" / ".git" / "modules" / "in" / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text("*.py filter=y\n")
    assert submodules() == f"{commit}-dirty" and not mark.exists()


def test_what_is_missing_is_not_fetched(tmp_path):
    """The remote of a partial clone may name the program that answers."""
    run = repository(tmp_path / "r")
    blob = run("rev-parse", "HEAD:a.py").stdout.decode().strip()
    mark = tmp_path / "ran"
    for name, value in {
        "remote.origin.url": str(tmp_path),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": f"touch {mark}; false",
        "extensions.partialClone": "origin",
        "core.repositoryformatversion": "1",
        "protocol.file.allow": "always",
    }.items():
        run("config", name, value)
    (tmp_path / "r" / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    git.Repositories(Runner(), Scrubber()).state(tmp_path / "r", "r")
    assert not mark.exists()


def test_a_long_diff_is_described_and_not_kept(tmp_path, monkeypatch):
    repository(tmp_path / "r")
    (tmp_path / "r" / "a.py").write_text("y = 2\n" * 500)
    monkeypatch.setattr(git, "PATCH_LIMIT", 1000)
    repositories = git.Repositories(Runner(), Scrubber())
    state = repositories.state(tmp_path / "r", "r")
    assert "not kept" in state["diff"]["problem"] and repositories.patches == {}


def test_a_repository_without_a_commit_and_no_repository_at_all(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True, timeout=30)
    runner = Runner()
    repositories = git.Repositories(runner, Scrubber())
    assert repositories.state(tmp_path / "r", "r")["commit"] is None
    (tmp_path / "none").mkdir()
    assert repositories.state(tmp_path / "none", "n") is None and runner.problems == {}
