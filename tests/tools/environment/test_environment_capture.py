"""Captures: the folder, what is missing or hangs, and what is changed."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from helpers.repositories import repository
from helpers.support import SCRIPTS, clean_environment, snapshot

from fastseed.tools import environment
from fastseed.tools.environment import commands, elf, schema, shared_libraries, storage
from fastseed.tools.environment.commands import Runner


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A capture of this process, in a folder."""
    path = tmp_path_factory.mktemp("captured") / "c"
    environment.capture(path, patches=False)
    return path


def script(*arguments, timeout=60, cwd=None, **environ):
    """The header that a capturing process prints."""
    done = subprocess.run(
        [sys.executable, SCRIPTS / "environment_capture.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=clean_environment(**environ),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---------------------------------------------------------------- what is captured


def test_a_capture_has_every_section_and_reads_back_as_it_was(captured):
    found = environment.load(captured)
    assert set(found.sections) == set(schema.SECTIONS)
    assert found.sections["torch"]["version"] == torch.__version__
    assert found.sections["torch"]["state"]["get_num_threads"] == torch.get_num_threads()
    assert found.sections["python"]["executable"] == sys.executable
    assert found.sections["packages"]["numpy"]["version"]
    assert any(name.startswith("libtorch_cpu") for name in found.sections["libraries"])
    assert found.header["seconds"] > 0 and found.header["section_seconds"]["packages"] >= 0
    again = environment.capture()
    assert environment.diff(captured, captured) == []
    assert [d for d in environment.diff(found, again) if d.path.startswith("packages")] == []


def test_capturing_draws_nothing_and_changes_no_switch(tmp_path):
    torch.manual_seed(1)
    before, variables = snapshot(), dict(os.environ)
    threads, initialised = torch.get_num_threads(), torch.cuda.is_initialized()
    environment.capture(tmp_path / "c")
    assert snapshot() == before and dict(os.environ) == variables
    assert (torch.get_num_threads(), torch.cuda.is_initialized()) == (threads, initialised)


def test_switches_are_seen(monkeypatch):
    before = environment.capture()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark)
    torch.use_deterministic_algorithms(True)
    try:
        found = environment.diff(before, environment.capture())
    finally:
        torch.use_deterministic_algorithms(False)
    paths = {one.path for one in found if one.level == "critical"}
    assert "torch/switches/backends.cudnn.benchmark" in paths
    assert "torch/state/are_deterministic_algorithms_enabled" in paths


def test_mapped_libraries_have_the_build_ids_that_their_files_have():
    found = shared_libraries.libraries()
    with_id = [one for copies in found.values() for one in copies if one.get("build_id")]
    assert len(with_id) >= 2
    for one in with_id[:3]:
        note = bytes.fromhex(one["build_id"])
        with open(one["path"], "rb") as file:
            assert note in file.read(1 << 22) or os.path.getsize(one["path"]) > 1 << 22


def test_build_ids_of_damaged_files_are_none(tmp_path):
    file = tmp_path / "x.so"
    for data in (b"", b"\x7fELF", b"\x7fELF" + b"\xff" * 60, b"\x7fELF\x02\x01" + b"\xff" * 300):
        file.write_bytes(data)
        assert elf.build_id(str(file)) is None
    assert elf.build_id(str(tmp_path / "gone")) is None


@pytest.mark.parametrize("kind", ["table", "far", "notes", "long"])
def test_a_crafted_library_costs_no_memory_and_no_error(tmp_path, kind):
    """Its headers ask for 4 GB of tables, offsets past the end of all files, gigabytes of notes."""
    size, count = (0xFFFF, 0xFFFF) if kind == "table" else (56, 0xFFFF)
    offset = 2**64 - 1 if kind == "far" else 64
    head = b"\x7fELF\x02\x01" + bytes(26) + struct.pack("<Q", offset) + bytes(14)
    head += struct.pack("<HH", size, count) + bytes(6)
    start = 2**64 - 1 if kind == "far" else 120
    note = struct.pack("<QQQQQQ", start, 0, 0, 2**62, 0, 0)
    body = struct.pack("<III", 4, 1 << 20, 3) + b"GNU\0" if kind == "long" else b""
    file = tmp_path / "x.so"
    with open(file, "wb") as out:
        out.write(head + (struct.pack("<II", 4, 0) + note + body) * (1 if body else 2000))
        out.truncate(1 << 33)  # sparse: nothing of it lies on the disk
    tracemalloc.start()
    try:
        assert elf.build_id(str(file)) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_a_pipe_is_no_library_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.so")
    assert elf.build_id(str(tmp_path / "x.so")) is None


def test_a_preloaded_library_is_found_with_its_build_id(tmp_path):
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "libc." in line or "libc-" in line]
    planted = tmp_path / "libplanted.so"
    shutil.copy(paths[0], planted)
    found = shared_libraries.preload({"LD_PRELOAD": f"{planted}:/gone.so"})["LD_PRELOAD"]
    assert found[0]["build_id"] == elf.build_id(paths[0]) and found[1]["missing"]


# ---------------------------------------------------------------- programs that are not there


def test_a_capture_needs_no_program(tmp_path):
    header = script(tmp_path / "c", PATH="")
    assert header["problems"] == []
    sections = environment.load(tmp_path / "c").sections
    assert sections["compilers"] == {} and sections["git"] == {}
    assert sections["torch"]["version"] == torch.__version__


def test_programs_that_hang_are_ended_and_named(tmp_path):
    """Every program that a capture may call, first in the PATH, with a child that outlives it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "nvidia-smi", "gcc", "g++", "clang", "nvcc", "hipcc", "icx", "ld", "rpm"):
        file = programs / name
        file.write_text("#!/bin/sh\nsleep 3127.5 &\nsleep 3127.5\n")
        file.chmod(0o755)
    start = time.monotonic()
    path = f"{programs}:/usr/bin:/bin"
    header = script(tmp_path / "c", "--timeout", "0.2", "--budget", "1.5", PATH=path, timeout=100)
    assert time.monotonic() - start < 90
    assert any(problem.startswith("nvidia-smi: took longer") for problem in header["problems"])
    assert any(
        "no time left" in problem or "took longer" in problem for problem in header["problems"]
    )
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
        ("exit 3", "ended with 3"),
        ("yes", "printed more than"),
        ("sleep 60", "took longer than"),
        ("exec >&-; sleep 60", "took longer than"),
    ],
)
def test_what_a_program_does_wrong_is_its_problem(tmp_path, monkeypatch, text, problem):
    monkeypatch.setattr(commands, "LIMIT", 1 << 20)
    file = tmp_path / "program"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    runner = Runner(timeout=2.0 if text == "yes" else 0.3, environ={"PATH": path})
    answer = runner.run("program")
    assert answer.out is None and problem in answer.problem
    assert runner.problems == {"program": answer.problem}


def test_the_path_is_searched_without_the_working_folder(tmp_path, monkeypatch):
    file = tmp_path / "program"
    file.write_text("#!/bin/sh\necho mine\n")
    file.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", ":", "bin"):
        assert Runner(environ={"PATH": path}).run("program").out is None
    assert Runner(environ={"PATH": str(tmp_path)}).run("program").text == "mine\n"


def test_a_section_that_cannot_be_read_is_a_problem_and_not_the_end(monkeypatch):
    from fastseed.tools.environment import packages

    def broken():
        raise RuntimeError("hunter2-in-a-message")

    monkeypatch.setattr(packages, "packages", broken)
    found = environment.capture()
    assert "packages: could not be read (RuntimeError)" in found.header["problems"]
    assert "hunter2-in-a-message" not in json.dumps(found)


# ---------------------------------------------------------------- the folder


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_folder_and_files_are_their_owners_alone(tmp_path, umask):
    repository(tmp_path / "r")
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    path = tmp_path / "c"
    old = os.umask(umask)
    try:
        capture = environment.Capture({}, {}, {"r.diff": "x"})
        storage.write("f", path, capture, False)
    finally:
        os.umask(old)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in [path, *path.rglob("*")]}
    assert modes == {
        "c": 0o700,
        "environment.json": 0o600,
        "patches": 0o700,
        "r.diff": 0o600,
    }


def test_nothing_is_overwritten_silently_and_no_link_is_followed(tmp_path, captured):
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "file").write_text("mine")
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    for name in ("link", "dangling", "file", "full"):
        for overwrite in (False, True):
            with pytest.raises(
                ValueError, match=r"fastseed.tools.environment.capture: directory must"
            ):
                environment.capture(tmp_path / name, overwrite=overwrite)
    assert list(target.iterdir()) == [] and not (tmp_path / "gone").exists()
    assert (tmp_path / "file").read_text() == (full / "thesis.txt").read_text() == "mine"
    with pytest.raises(ValueError, match="new or empty"):
        environment.capture(captured)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "dangling",
        "file",
        "full",
        "link",
        "target",
    ]


def test_a_link_that_appears_in_between_is_not_followed(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    real = storage.check_free

    def late(function, path, overwrite):
        real(function, path, overwrite)
        if not os.path.lexists(path):
            path.symlink_to(target)

    monkeypatch.setattr(storage, "check_free", late)
    with pytest.raises((OSError, ValueError)):
        storage.write("f", tmp_path / "c", environment.Capture({}, {}, {}), False)
    assert list(target.iterdir()) == []


def test_overwrite_replaces_a_capture_and_an_empty_folder_is_taken(tmp_path):
    path = tmp_path / "c"
    path.mkdir()
    storage.write("f", path, environment.Capture({"n": 1}, {}, {"a.diff": "x"}), False)
    storage.write("f", path, environment.Capture({"n": 2}, {}, {}), True)
    assert environment.load(path).header == {"n": 2} and environment.load(path).patches == {}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "c"
    storage.write("f", path, environment.Capture({"n": 1}, {}, {}), False)

    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(storage, "_write_file", full)
    with pytest.raises(OSError):
        storage.write("f", path, environment.Capture({"n": 2}, {}, {}), True)
    assert environment.load(path).header == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"directory": 3}, TypeError),
        ({"directory": b"x"}, TypeError),
        ({"directory": ""}, ValueError),
        ({"directory": "a\0b"}, ValueError),
        ({"all_env": 1}, TypeError),
        ({"timeout": True}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"budget": float("nan")}, ValueError),
        ({"budget": float("inf")}, ValueError),
    ],
)
def test_wrong_arguments(arguments, error):
    with pytest.raises(error, match=r"^fastseed.tools.environment.capture: \w+ must be"):
        environment.capture(**arguments)


def test_the_documented_entry_is_the_signature():
    names = list(inspect.signature(environment.capture).parameters)
    assert names == ["directory", "all_env", "clocks", "patches", "overwrite", "timeout", "budget"]
