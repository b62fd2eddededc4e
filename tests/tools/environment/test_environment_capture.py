"""Capturing: the sections, missing and hanging programs, arguments, patches."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from helpers.repositories import git, repository
from helpers.support import snapshot

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import commands
from fastseed.tools.environment.commands import Runner


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
    assert found.sections["torch"]["version"] == torch.__version__
    assert found.sections["torch"]["switches"]["get_num_threads"] == torch.get_num_threads()
    assert found.sections["packages"]["numpy"] and found.sections["hardware"]["cpu"]
    assert found.header["seconds"] > 0
    assert environment.diff(captured, captured) == []
    paths = {one.path for one in environment.diff(found, environment.capture())}
    assert paths <= {"variables/PYTEST_CURRENT_TEST"}


def test_capturing_uses_no_random_numbers_and_changes_nothing(tmp_path):
    torch.manual_seed(1)
    before, variables = snapshot(), dict(os.environ)
    threads, initialized = torch.get_num_threads(), torch.cuda.is_initialized()
    environment.capture(tmp_path / "c")
    assert snapshot() == before and dict(os.environ) == variables
    assert (torch.get_num_threads(), torch.cuda.is_initialized()) == (threads, initialized)


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


# ---------------------------------------------------------------- programs that are not there


def test_a_capture_needs_no_program(monkeypatch):
    monkeypatch.setenv("PATH", "")
    header, sections, _ = environment.capture()
    assert header["problems"] == []
    assert sections["git"] == sections["apt"] == {}
    assert sections["torch"]["version"] == torch.__version__


def test_programs_that_hang_are_ended_and_named(tmp_path, monkeypatch):
    """Every program that a capture may run, first on the PATH, with a child that outlives it."""
    for name in ("git", "nvidia-smi", "gcc", "clang", "nvcc", "lscpu", "dpkg-query", "lsb_release"):
        program(tmp_path / name, "sleep 3127.5 &\nsleep 3127.5")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(commands, "TIMEOUT", 0.2)
    header = environment.capture().header
    assert "nvidia-smi: took longer than 0.2 s" in header["problems"]
    assert "git: took longer than 0.2 s" in header["problems"]
    assert header["seconds"] < 30
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"3127.5" in command_line(p)]


def command_line(path):
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


@pytest.mark.parametrize("text", ["sleep 60", "exec >&-; sleep 60"])
def test_a_program_that_hangs_is_a_problem(tmp_path, monkeypatch, text):
    program(tmp_path / "program", text)
    monkeypatch.setattr(commands, "TIMEOUT", 0.3)
    runner = Runner({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert runner.run("program --now") == (127, "", "")
    assert runner.problems == {"program": "program: took longer than 0.3 s"}
    assert runner.run(["/no/such"]) == (127, "", "") and len(runner.problems) == 1


def test_a_section_that_cannot_be_read_is_a_problem(monkeypatch):
    from fastseed.tools.environment import packages

    def broken():
        raise RuntimeError("hunter2-in-a-message")

    monkeypatch.setattr(packages, "packages", broken)
    found = environment.capture()
    assert "packages: could not be read (RuntimeError)" in found.header["problems"]
    assert "hunter2-in-a-message" not in json.dumps(found)


# ---------------------------------------------------------------- arguments and patches


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"directory": 3}, TypeError),
        *(({"directory": ""}, ValueError), ({"patches": 1}, TypeError)),
    ],
)
def test_wrong_arguments(arguments, error):
    with pytest.raises(error, match=r"^fastseed.tools.environment.capture: \w+ must be"):
        environment.capture(**arguments)


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
