"""benchmarks/gpu.sh without a GPU: its stages, its limits of time, what it makes of failures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.sh"
BASH = shutil.which("bash")

pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Nothing is compiled into the repository."""
    monkeypatch.setenv("WORK", str(tmp_path / "work"))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BASH), str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip


def program(file: Path, *lines: str) -> str:
    """A shell script that stands for a program."""
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return str(file)


def test_script_is_bash_and_passes_shellcheck() -> None:
    assert subprocess.run([str(BASH), "-n", str(SCRIPT)]).returncode == 0
    if (shellcheck := shutil.which("shellcheck")) is not None:
        done = subprocess.run([shellcheck, str(SCRIPT)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_script_help_names_what_the_environment_says() -> None:
    done = run("--help")
    assert done.returncode == 0 and "pipefail" not in done.stdout
    for word in (
        "OUT",
        "WORK",
        "BUDGET",
        "PYTHON",
        "STAGES",
        "CUDA_ARCH",
        "--dry-run",
        "Exit status",
    ):
        assert word in done.stdout


def test_script_dry_run_lists_the_stages_in_order_and_does_nothing(tmp_path: Path) -> None:
    done = run("--dry-run", OUT=str(tmp_path / "out"), CUDA_ARCH="9.0")
    assert done.returncode == 0, done.stderr
    names = re.findall(r"^(\w+) \(at most \d+ s\): ", done.stdout, re.M)
    assert list(dict.fromkeys(names)) == [
        "build", "program", "kernels", "shuffle_program", "shuffle", "digest_program", "digest",
        "memcheck", "racecheck", "tests", "initcheck", "bench",
    ]  # fmt: skip
    for part in ("FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST=9.0", "sm_90", "FAIL_WITHOUT_CUDA=1",
                 "-m cuda", "-m benchmarks.gpu --out", "test_cuda_shuffle.cu",
                 "tests/vectors/shuffle.txt", "test_cuda_digest.cu"):  # fmt: skip
        assert part in done.stdout
    assert not (tmp_path / "out").exists()


def test_script_boxes_leave_the_benchmarks_their_time() -> None:
    """Even if each stage before them takes all that it may."""
    done = run("--dry-run", BUDGET="570")
    boxes = {
        name: int(seconds)
        for name, seconds in re.findall(r"^(\w+) \(at most (\d+) s\)", done.stdout, re.M)
    }
    boxes.pop("initcheck")  # runs only if there is time to spare
    assert sum(boxes.values()) - boxes["bench"] <= 570 - 100


@pytest.mark.parametrize(
    "arguments, stages", [(("--no-such",), "build"), ((), "build-all")], ids=["option", "stage"]
)
def test_script_refuses_what_it_does_not_know(arguments, stages, tmp_path: Path) -> None:
    done = run(*arguments, STAGES=stages, OUT=str(tmp_path))
    assert done.returncode == 2 and "gpu.sh: " in done.stderr


def test_script_ends_after_a_build_that_fails(tmp_path: Path) -> None:
    python = program(tmp_path / "python", "echo no compiler; exit 3")
    done = run(OUT=str(tmp_path / "out"), PYTHON=python)
    assert done.returncode == 1
    assert "build: failed with 3" in done.stdout and "no compiler" in done.stdout
    assert "tests" not in done.stdout
    assert (tmp_path / "out" / "stages.txt").read_text() == "build: failed with 3\n"


def test_script_ends_a_stage_that_takes_too_long(tmp_path: Path) -> None:
    python = program(tmp_path / "python", "exec sleep 60")
    done = run(OUT=str(tmp_path / "out"), PYTHON=python, BUDGET="12", STAGES="build")
    assert done.returncode == 1 and re.search(r"build: ran out of its \d+ s", done.stdout)


def test_script_without_the_sanitizer_says_so_and_goes_on(tmp_path: Path) -> None:
    if shutil.which("compute-sanitizer"):
        pytest.skip("there is a compute-sanitizer")
    home = str(program(tmp_path / "no", "exit 1"))
    done = run(OUT=str(tmp_path / "out"), STAGES="memcheck racecheck", CUDA_HOME=home)
    assert done.returncode == 0
    assert "memcheck: skipped, there is no compute-sanitizer" in done.stdout


# An nvcc whose programs print what they are given.
NVCC = (
    'while [ $# -gt 0 ]; do [ "$1" = -o ] && target=$2; shift; done',
    "printf '#!/bin/sh\\necho \"given $*\"\\n' > $target; chmod +x $target",
)


def test_script_runs_the_programs_and_keeps_all_they_print_in_one_file(tmp_path: Path) -> None:
    """Few files: where a machine is lent, few come back."""
    tools, out = tmp_path / "tools", tmp_path / "out"
    tools.mkdir()
    program(tools / "nvcc", *NVCC)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = run(OUT=str(out), STAGES="kernels shuffle digest", PATH=path, CUDA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stdout
    ended = (out / "stages.txt").read_text().splitlines()
    names = ["program", "kernels", "shuffle_program", "shuffle", "digest_program", "digest"]
    assert ended == [f"{name}: ok" for name in names]
    log = (out / "log.txt").read_text()
    assert "== kernels\ngiven tests/vectors/vectors.txt tests/vectors/draws.txt\n" in log
    assert "== shuffle\ngiven tests/vectors/shuffle.txt\n" in log
    assert log.endswith("== digest\ngiven \n")
    assert sorted(file.name for file in out.iterdir()) == ["log.txt", "stages.txt"]


@pytest.mark.parametrize("library", ["lib64/libcudart.so", "targets/x/lib/libcudart.so.13"])
def test_script_finds_the_toolkit_behind_an_nvcc_that_is_a_link(library, tmp_path: Path) -> None:
    """And a library to link with, whose name without a number may be missing."""
    home, tools, out = tmp_path / "cuda", tmp_path / "tools", tmp_path / "out"
    for file in ("bin/nvcc", "include/cuda_runtime.h", library):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text("")
    program(home / "bin" / "nvcc", *NVCC)
    tools.mkdir()
    (tools / "nvcc").symlink_to(home / "bin" / "nvcc")
    python = program(tmp_path / "python", 'echo "home $CUDA_HOME libraries $LIBRARY_PATH."')
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    given = {"PYTHON": python, "PATH": path, "STAGES": "build", "LIBRARY_PATH": ""}
    done = run(OUT=str(out), CUDA_HOME="", **given)
    assert done.returncode == 0, done.stdout
    at = re.search(r"home (\S+) libraries (\S+)\.\n", (out / "log.txt").read_text())
    assert at is not None and at[1] == str(home)
    assert Path(at[2], "libcudart.so").resolve() == home / library


@pytest.mark.parametrize("status, code", [(0, 0), (9, 1)])
def test_script_runs_the_program_under_each_tool(status, code, tmp_path: Path) -> None:
    """Compiled once; what the sanitizer finds fails the run."""
    tools = tmp_path / "tools"
    tools.mkdir()
    program(tools / "nvcc", f'case "$*" in *" -o "*) echo nvcc >> {tmp_path}/calls ;; esac')
    program(tools / "compute-sanitizer", f"echo $2 >> {tmp_path}/calls", f"exit {status}")
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = run(OUT=str(tmp_path / "out"), STAGES="memcheck racecheck", PATH=path)
    assert done.returncode == code, done.stdout
    calls = (tmp_path / "calls").read_text().split()
    each = 3 if status == 0 else 1  # the programs; none is run after a finding
    assert calls == ["nvcc"] * 3 + ["memcheck"] * each + ["racecheck"] * each


def test_script_tries_to_compile_once(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    program(tools / "nvcc", "echo not like this; exit 2")
    program(tools / "compute-sanitizer", "exit 0")
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = run(OUT=str(tmp_path / "out"), STAGES="kernels memcheck racecheck", PATH=path)
    assert done.returncode == 1 and "not like this" in done.stdout
    assert (tmp_path / "out" / "stages.txt").read_text() == "program: failed with 2\n"


@pytest.mark.parametrize("status, code", [(0, 0), (1, 1)])
def test_script_fails_for_tests_that_fail(status, code, tmp_path: Path) -> None:
    python = program(tmp_path / "python", f'echo "$@" > {tmp_path}/calls', f"exit {status}")
    done = run(OUT=str(tmp_path / "out"), PYTHON=python, STAGES="tests")
    assert done.returncode == code
    called = (tmp_path / "calls").read_text()
    assert "pytest -m cuda" in called and "tests/backend/test_derive.py" in called
    assert "tests/seeder/test_fwr13y_scheme.py" not in called


def test_script_settings_of_pytest_work_without_pytest_timeout() -> None:
    addopts = re.search(r'-o addopts="[^"]*"', SCRIPT.read_text())
    assert addopts is not None
    option = addopts.group().removeprefix("-o ").replace('"', "")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:timeout", "-o", option, "--collect-only", "-q",
         "-m", "cuda", "-p", "no:cacheprovider", "tests/backend/test_derive.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode in (0, 5), done.stdout + done.stderr
