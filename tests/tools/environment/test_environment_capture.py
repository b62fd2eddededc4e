"""Capturing: the sections, missing and hanging programs, arguments, the key, patches."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
import sys
from pathlib import Path

import pytest
import torch
from helpers.repositories import git, repository
from helpers.support import SCRIPTS, snapshot

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import commands, keyed_hash, shared_libraries
from fastseed.tools.environment.commands import Runner


class Plain(keyed_hash.Hasher):
    """Stores values as they are."""

    def __call__(self, kind, value):
        return value


PLAIN = Plain(b"")


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Capture this process."""
    path = tmp_path_factory.mktemp("captured") / "c"
    environment.capture(path)
    return path


# ---------------------------------------------------------------- what is captured


def test_a_capture_has_every_section_and_reads_back(captured):
    found = environment.load(captured)
    for name in found.sections:
        assert f"`{name}`" in (SCRIPTS.parents[1] / "docs" / "environment.md").read_text()
    assert found.sections["torch"]["version"] == torch.__version__
    assert found.sections["torch"]["switches"]["get_num_threads"] == torch.get_num_threads()
    assert found.sections["python"]["executable"].startswith("hmac:")
    assert found.sections["packages"]["numpy"]["version"]
    assert any(name.startswith("libtorch_cpu") for name in found.sections["libraries"])
    assert found.header["seconds"] > 0 and found.header["section_seconds"]["packages"] >= 0
    again = environment.capture()
    assert environment.diff(captured, captured) == []
    paths = {one.path for one in environment.diff(found, again)}
    assert paths <= {"variables/FASTSEED_CAPTURE_KEY", "variables/PYTEST_CURRENT_TEST"}


def test_capturing_uses_no_random_numbers_and_changes_nothing(tmp_path):
    torch.manual_seed(1)
    before, variables = snapshot(), dict(os.environ)
    threads, initialised = torch.get_num_threads(), torch.cuda.is_initialized()
    environment.capture(tmp_path / "c")
    assert snapshot() == before and dict(os.environ) == variables
    assert (torch.get_num_threads(), torch.cuda.is_initialized()) == (threads, initialised)


def test_switches_are_captured(monkeypatch):
    before = environment.capture()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark)
    torch.use_deterministic_algorithms(True)
    try:
        found = environment.diff(before, environment.capture())
    finally:
        torch.use_deterministic_algorithms(False)
    paths = {one.path for one in found if one.level == "critical"}
    assert "torch/switches/backends.cudnn.benchmark" in paths
    assert "torch/switches/are_deterministic_algorithms_enabled" in paths


def test_mapped_libraries_have_the_build_ids_that_their_files_have():
    found = shared_libraries.libraries(PLAIN)
    with_id = [one for copies in found.values() for one in copies if one.get("build_id")]
    assert len(with_id) >= 2
    for one in with_id[:3]:
        note = bytes.fromhex(one["build_id"])
        with open(f"{one['folder']}/{one['name']}", "rb") as file:
            assert (
                note in file.read(1 << 22)
                or os.path.getsize(f"{one['folder']}/{one['name']}") > 1 << 22
            )


def test_files_without_a_build_id(tmp_path):
    file = tmp_path / "x.so"
    loop = b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<Q", 64) + bytes(14) + b"\0\0\xff\xff"
    for data in (b"", b"\x7fELF", b"\x7fELF\x02\x01", loop.ljust(64, b"\0")):
        file.write_bytes(data)
        assert shared_libraries.build_id(str(file)) is None
    assert shared_libraries.build_id(str(tmp_path / "gone")) is None
    os.mkfifo(tmp_path / "pipe.so")
    assert shared_libraries.build_id(str(tmp_path / "pipe.so")) is None


def test_a_preloaded_library_is_found_with_its_build_id(tmp_path):
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "libc." in line or "libc-" in line]
    planted = tmp_path / "libplanted.so"
    shutil.copy(paths[0], planted)
    given = {"LD_PRELOAD": f"{planted}:/gone.so"}
    found = shared_libraries.preload(given, PLAIN)["LD_PRELOAD"]
    assert found[0]["build_id"] == shared_libraries.build_id(paths[0]) and found[1]["missing"]


# ---------------------------------------------------------------- programs that are not there


def test_a_capture_needs_no_program(monkeypatch):
    monkeypatch.setenv("PATH", "")
    header, sections, _ = environment.capture()
    assert header["problems"] == []
    assert sections["compilers"] == {} and sections["git"] == {}
    assert sections["torch"]["version"] == torch.__version__


def test_programs_that_hang_are_ended_and_named(tmp_path, monkeypatch):
    """Every program that a capture may run, first on the PATH, with a child that outlives it."""
    for name in ("git", "nvidia-smi", "gcc", "g++", "clang", "nvcc", "hipcc", "icx", "ld"):
        program(tmp_path / name, "sleep 3127.5 &\nsleep 3127.5")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(commands, "TIMEOUT", 0.2)
    header = environment.capture().header
    assert "nvidia-smi: took longer than 0.2 s" in header["problems"]
    assert "git: took longer than 0.2 s" in header["problems"]
    assert header["section_seconds"]["git"] < 30
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"3127.5" in command_line(p)]


def command_line(path):
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


@pytest.mark.parametrize(
    "text, problem",
    [
        ("exit 3", "program: ended with 3"),
        ("sleep 60", "program: took longer than 0.3 s"),
        ("exec >&-; sleep 60", "program: took longer than 0.3 s"),
    ],
)
def test_a_program_that_fails_is_a_problem(tmp_path, monkeypatch, text, problem):
    program(tmp_path / "program", text)
    monkeypatch.setattr(commands, "TIMEOUT", 0.3)
    runner = Runner({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert runner.run("program") is None and runner.problems == {"program": problem}


def test_a_section_that_cannot_be_read_is_a_problem(monkeypatch):
    from fastseed.tools.environment import packages

    def broken(hasher):
        raise RuntimeError("hunter2-in-a-message")

    monkeypatch.setattr(packages, "packages", broken)
    found = environment.capture()
    assert "packages: could not be read (RuntimeError)" in found.header["problems"]
    assert "hunter2-in-a-message" not in json.dumps(found)


# ---------------------------------------------------------------- arguments and the key


@pytest.mark.parametrize(
    "arguments, error",
    [
        *(({"directory": 3}, TypeError), ({"directory": b"x"}, TypeError)),
        *(({"directory": ""}, ValueError), ({"patches": 1}, TypeError)),
    ],
)
def test_wrong_arguments(arguments, error):
    with pytest.raises(error, match=r"^fastseed.tools.environment.capture: \w+ must be"):
        environment.capture(**arguments)


def keyed(path, monkeypatch):
    monkeypatch.setenv("FASTSEED_CAPTURE_KEY", str(path))
    return keyed_hash.load()[0]


def test_the_key_is_created_once_for_its_owner(tmp_path, monkeypatch):
    a, b = (keyed(tmp_path / "new" / "key", monkeypatch) for _ in range(2))
    assert a.key_id == b.key_id and a("a", "x") == b("a", "x")
    assert stat.S_IMODE((tmp_path / "new" / "key").stat().st_mode) == 0o600
    assert len(list((tmp_path / "new").iterdir())) == 1
    other = keyed(tmp_path / "other", monkeypatch)
    assert other("a", "x") != a("a", "x") != a("b", "x")


def test_where_the_key_comes_from(tmp_path, monkeypatch):
    named, _ = keyed_hash.load()  # FASTSEED_CAPTURE_KEY
    monkeypatch.delenv("FASTSEED_CAPTURE_KEY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    default, problem = keyed_hash.load()
    assert (tmp_path / "fastseed" / "capture.key").is_file() and problem == ""
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    lost, problem = keyed_hash.load()
    assert len({named.key_id, default.key_id, lost.key_id}) == 3 and "cannot be stored" in problem
    with pytest.raises(ValueError, match="key must be a file with 64 hexadecimal digits"):
        keyed(tmp_path / "file", monkeypatch)
    with pytest.raises(OSError):
        keyed(tmp_path / "file" / "key", monkeypatch)


def test_hashes_with_different_keys_are_not_compared(tmp_path, capsys, monkeypatch):
    for name in ("a", "b"):
        monkeypatch.setenv("FASTSEED_CAPTURE_KEY", str(tmp_path / f"{name}.key"))
        environment.capture(tmp_path / name)
    assert environment.diff(tmp_path / "a", tmp_path / "b") == []
    assert main(["env", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "hashes are not compared" in capsys.readouterr().out


def test_patches_are_stored_on_request_with_a_warning(tmp_path, monkeypatch, caplog, capsys):
    work = repository(tmp_path / "r")
    (work / "a.py").write_text("password = 'x'\n")
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    found = environment.capture()
    assert found.patches == {} and not caplog.records
    assert main(["env", "capture", str(tmp_path / "c"), "--patches"]) == 0
    assert "stored as text, with any secret" in caplog.text
    capsys.readouterr()
    assert main(["env", "show", str(tmp_path / "c"), "--patch", "git"]) == 0
    (tmp_path / "p.diff").write_text(capsys.readouterr().out)
    git(work, "checkout", "-q", "a.py")
    git(work, "apply", str(tmp_path / "p.diff"))
    assert (work / "a.py").read_text() == "password = 'x'\n"
    assert main(["env", "show", str(tmp_path / "c"), "--patch", "x"]) == 2
