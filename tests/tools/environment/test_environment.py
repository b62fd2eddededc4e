"""Recording an environment: its sections, its folder, missing programs, and comparison."""

import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers.repositories import git, repository
from helpers.support import snapshot

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import machine, sources

MADE = {"torch": {"version": "2"}, "variables": {"HOST": "x"}, "about": {"at": "now"}}


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def write(monkeypatch):
    """Write a made-up environment, and return its folder."""

    def write(path, **sections):
        with monkeypatch.context() as patch:
            patch.setattr(environment, "collect", lambda: (sections or MADE, {}))
            environment.capture(path)
        return str(path)

    return write


def test_an_environment_has_every_section_and_reads_back(tmp_path):
    torch.manual_seed(1)
    before, variables = snapshot(), dict(os.environ)
    found = environment.capture(tmp_path / "c")
    assert snapshot() == before and dict(os.environ) == variables
    assert environment.load(tmp_path / "c") == found and found["about"]["problems"] == []
    assert found["torch"]["version"] == torch.__version__
    assert found["torch"]["get_num_threads"] == torch.get_num_threads()
    assert found["packages"]["numpy"] and found["machine"]["processor"]
    environment.capture(tmp_path / "d")
    assert environment.diff(tmp_path / "c", tmp_path / "d") == []


def test_switches_are_recorded(monkeypatch, tmp_path):
    environment.capture(tmp_path / "a")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark)
    torch.use_deterministic_algorithms(True)
    try:
        environment.capture(tmp_path / "b")
    finally:
        torch.use_deterministic_algorithms(False)
    found = environment.diff(tmp_path / "a", tmp_path / "b")
    names = {one.name for one in found if one.text == "changes numbers"}
    assert "torch backends.cudnn.benchmark" in names
    assert "torch are_deterministic_algorithms_enabled" in names


def test_the_driver_gpus_and_packages_of_other_machines(tmp_path, monkeypatch):
    program(tmp_path / "bin" / "nvidia-smi", "echo 'NVIDIA H200, 570.1'; echo 'NVIDIA T4, 570.1'")
    program(tmp_path / "bin" / "dpkg-query", "echo 'libc6 2.36'; echo 'removed '")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    assert machine.gpus() == {"driver": "570.1", "names": ["NVIDIA H200", "NVIDIA T4"]}
    assert sources.apt() == {"libc6": "2.36"}
    loaded = "gcc/12.1:cuda/12.4:lang/python/3.11.2:token=x/1.0:word"
    assert sources.modules({"LOADEDMODULES": loaded}) == {
        **{"gcc": "gcc/12.1", "cuda": "cuda/12.4", "lang/python": "lang/python/3.11.2"},
        "(redacted)": "(redacted)",
    }
    head = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
    commit = {"url": "https://e.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "1" * 40}}
    editable = {"url": f"file://{tmp_path}/m", "dir_info": {"editable": True}}
    for folder, name, version, origin in (
        ("a", "Odd_Name", 1, "{broken"),
        ("b", "odd.name", 2, "{}"),
        ("a", "pinned", 1, json.dumps(commit)),
        ("a", "mine", 1, json.dumps(editable)),
    ):
        made = tmp_path / folder / f"{name}-{version}.dist-info"
        made.mkdir(parents=True)
        (made / "METADATA").write_text(head.format(name, version))
        (made / "direct_url.json").write_text(origin)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b")])
    pinned = f"1, commit {'1' * 40}"
    expected = {"mine": "1, editable", "odd-name": "1, hides 2", "pinned": pinned}
    assert sources.packages() == expected


def test_no_program_is_needed(monkeypatch):
    monkeypatch.setenv("PATH", "")
    found, _ = environment.collect()
    assert found["about"]["problems"] == [] and found["git"] == found["apt"] == {}


def test_programs_that_hang_are_named(tmp_path, monkeypatch):
    """Every program that may be run, first on the PATH, with a child that holds its output."""
    for name in ("git", "nvidia-smi", "dpkg-query"):
        program(tmp_path / name, "sleep 20 &\nsleep 20")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(machine, "TIMEOUT", 0.2)
    begin = time.monotonic()
    problems = environment.collect()[0]["about"]["problems"]
    text = "could not be read (TimeoutExpired)"
    assert problems == [f"{section}: {text}" for section in ("gpus", "apt", "git")]
    assert time.monotonic() - begin < 15


def test_a_section_that_cannot_be_read_is_a_problem(monkeypatch):
    def broken():
        raise RuntimeError("hunter2-in-a-message")

    monkeypatch.setattr(sources, "packages", broken)
    found, _ = environment.collect()
    assert "packages: could not be read (RuntimeError)" in found["about"]["problems"]
    assert "hunter2-in-a-message" not in json.dumps(found)


def test_a_new_folder_is_the_owners_and_an_existing_one_keeps_its_mode(tmp_path, write):
    assert stat.S_IMODE(Path(write(tmp_path / "new")).stat().st_mode) == 0o700
    (tmp_path / "shared").mkdir(mode=0o755)
    assert stat.S_IMODE(Path(write(tmp_path / "shared")).stat().st_mode) == 0o755
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"environment.json"}


def test_a_folder_in_use_is_not_changed(tmp_path, write):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    for path in (tmp_path / "full" / "thesis.txt", tmp_path / "full", write(tmp_path / "a")):
        with pytest.raises(ValueError, match=r"^fastseed.tools.environment.capture: directory mu"):
            environment.capture(path)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


def piped(file):
    file.unlink()
    os.mkfifo(file)


DAMAGES = {
    "empty": lambda file: file.write_text(""),
    "binary": lambda file: file.write_bytes(b"\xff\xfe\0"),
    "missing": lambda file: file.unlink(),
    "pipe": piped,
    "huge": lambda file: os.truncate(file, 10 << 30),
    "cut": lambda file: file.write_text(file.read_text()[:-9]),
    "a list": lambda file: file.write_text("[1]"),
    "no section": lambda file: file.write_text('{"torch": 1}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_environment_is_an_error(tmp_path, write, damage, capsys):
    folder = Path(write(tmp_path / "a"))
    DAMAGES[damage](folder / "environment.json")
    with pytest.raises(ValueError, match=r"^fastseed.tools.environment.load: .* must "):
        environment.load(folder)
    assert main(["show", str(folder)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_patches_are_stored_on_request(tmp_path, monkeypatch):
    work = repository(tmp_path / "r")
    (work / "a.py").write_text("password = 'x'\n")
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    environment.capture(tmp_path / "a")
    assert not list((tmp_path / "a").glob("*.patch"))
    environment.capture(tmp_path / "b", patches=True)
    git(work, "checkout", "-q", "a.py")
    git(work, "apply", str(tmp_path / "b" / "working.patch"))
    assert (work / "a.py").read_text() == "password = 'x'\n"


def test_differences_that_change_numbers_come_first(tmp_path, write, capsys):
    levels = {
        "changes numbers": [
            *("git working/commit", "gpus driver", "packages torch", "torch cudnn"),
            *("variables LD_PRELOAD", "variables OMP_NUM_THREADS"),
        ],
        "may change numbers": ["machine system", "packages frobnicator", "variables EDITOR"],
    }
    sides = [{"variables": {"FASTSEED_RUN_DIR": str(i)}} for i in range(2)]
    for name in (name for names in levels.values() for name in names):
        section, _, key = name.partition(" ")
        for side, value in zip(sides, ("1", "2\x1b[2J"), strict=True):
            side.setdefault(section, {})[key] = value
    a, b = (write(tmp_path / str(i), **side) for i, side in enumerate(sides))
    found = environment.diff(a, b)
    assert [(one.text, one.name) for one in found] == [
        (text, name) for text, names in levels.items() for name in names
    ]
    assert main(["diff", a, b]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and shown.index("gpus driver") < shown.index("variables EDITOR")
    assert main(["diff", a, a]) == 0
    assert capsys.readouterr().out == "the environments are equal\n"
    assert main(["diff", a, b, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["environments"]) == len(found) == 9


def test_values_that_one_side_lacks_and_true_is_not_one(tmp_path, write):
    a = write(tmp_path / "a", packages={"a": True, "b": "1"})
    b = write(tmp_path / "b", packages={"a": 1, "c": "1"})
    assert [(one.name, one.a, one.b) for one in environment.diff(a, b)] == [
        *(("packages a", True, 1), ("packages b", "1", None), ("packages c", None, "1"))
    ]


def test_folders_without_an_environment(tmp_path):
    for path in (tmp_path / "gone", tmp_path):
        with pytest.raises(
            ValueError, match=r"load: .*environment.json' must be readable \(No such"
        ):
            environment.diff(path, path)
