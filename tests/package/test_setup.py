"""setup.py's choice of the CUDA part: no GPU is needed, and a toolkit that does not fit is left."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

setuptools = pytest.importorskip("setuptools")
SETUP = Path(__file__).resolve().parents[2] / "setup.py"


@pytest.fixture
def script(monkeypatch):
    """The functions of setup.py, which builds nothing."""
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    monkeypatch.setenv("FASTSEED_NO_EXT", "1")
    monkeypatch.delenv("FORCE_CUDA", raising=False)
    return SimpleNamespace(**runpy.run_path(str(SETUP)))


@pytest.fixture
def toolkit(tmp_path):
    """Return the folder of a program that claims to be nvcc of CUDA 12.8."""
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text(
        "#!/bin/sh\ncase $1 in\n"
        "--version) echo Cuda compilation tools, release 12.8, V12.8.93 ;;\n"
        "--list-gpu-arch) echo compute_75; echo compute_80; echo compute_120 ;;\nesac\n"
    )
    nvcc.chmod(0o755)
    return str(tmp_path)


def test_setup_takes_an_nvcc_of_torchs_major_version_alone(script, toolkit, tmp_path):
    assert script.unusable_nvcc(toolkit, "12.6") is None
    assert script.unusable_nvcc(toolkit, "13.0") == "nvcc is of CUDA 12, this torch of CUDA 13.0"
    assert script.unusable_nvcc(None, "12.6") == "there is no nvcc"
    assert script.unusable_nvcc(str(tmp_path / "bin"), "12.6") == "there is no nvcc"


@pytest.mark.parametrize(
    ("built", "supported", "expected"),
    [
        ("sm_70 sm_80 sm_120", "compute_80 compute_90 compute_120", "8.0;12.0+PTX"),
        ("sm_80 sm_90a compute_120", "compute_80 compute_90", "8.0+PTX"),
        ("sm_80", "", "8.0+PTX"),  # an nvcc that does not say
        ("", "compute_80", ""),
    ],
)
def test_setup_architectures_are_torchs_that_nvcc_has(script, built, supported, expected):
    assert script.architectures(built, supported) == expected


@pytest.mark.parametrize(
    ("named", "devices", "expected"),
    [(None, 0, "8.0;12.0+PTX"), (None, 1, None), ("9.0", 0, "9.0"), ("", 0, "8.0;12.0+PTX")],
)
def test_setup_names_architectures_where_there_is_no_gpu(
    script, toolkit, monkeypatch, named, devices, expected
):
    """torch's own default are those of the GPUs here: it fails without one."""
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch._C, "_cuda_getArchFlags", lambda: "sm_80 sm_120", raising=False)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", toolkit)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "unset")  # put back afterwards, whatever is set
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    if named is not None:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", named)
    monkeypatch.setitem(script.cuda_sources.__globals__, "can_link", lambda *_: True)
    found, _ = script.cuda_sources()
    assert "csrc/cuda/derive.cu" in found and "csrc/ops/cuda.cpp" in found
    assert all((SETUP.parent / file).is_file() for file in found)
    assert script.os.environ.get("TORCH_CUDA_ARCH_LIST") == expected


def test_setup_without_a_toolkit_that_fits_builds_for_the_cpu(script, toolkit, monkeypatch, capsys):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", toolkit)
    assert script.cuda_sources() == ([], [])
    assert "without the CUDA part: nvcc is of CUDA 12" in capsys.readouterr().err
    script.cuda_sources.__globals__["FORCE_CUDA"] = True
    with pytest.raises(SystemExit, match="FORCE_CUDA must be unset"):
        script.cuda_sources()


def test_setup_takes_the_runtime_of_the_toolkit_or_of_pip(
    script, toolkit, monkeypatch, capsys, tmp_path
):
    """The linker of this machine is called: the made-up toolkit has no libcudart."""
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", toolkit)
    monkeypatch.setattr("torch.utils.cpp_extension.library_paths", lambda _: [toolkit])
    if script.compiler() is None:
        pytest.skip("there is no C++ compiler")
    without = [path for path in sys.path if not Path(path, "nvidia").exists()]  # as of a CPU build
    monkeypatch.setattr(sys, "path", without)
    assert script.cuda_sources() == ([], [])
    assert "cannot be linked; set CUDA_HOME to the toolkit's folder" in capsys.readouterr().err
    runtime = tmp_path / "packages" / "nvidia" / "cu12" / "lib" / "libcudart.so.12"
    runtime.parent.mkdir(parents=True)
    subprocess.run(
        [script.compiler(), "-shared", "-o", runtime, "-x", "c++", "/dev/null"], check=True
    )
    monkeypatch.setitem(script.cuda_sources.__globals__, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), *sys.path])
    assert script.runtime_folders(toolkit) == [str(tmp_path / "build" / "cudart")]


def test_setup_finds_the_toolkit_behind_a_link(script, toolkit, monkeypatch, tmp_path):
    link = tmp_path / "usual" / "bin" / "nvcc"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path(toolkit, "bin", "nvcc"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(tmp_path / "usual"))
    assert script.toolkit() == toolkit == torch.utils.cpp_extension.CUDA_HOME
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", str(tmp_path / "usual"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "usual"))  # what somebody sets is what it is
    assert script.toolkit() == str(tmp_path / "usual")


def test_setup_writes_down_why_a_part_is_missing(tmp_path):
    """As pip runs it, which shows nothing of what is printed; without a compiler to be found."""
    environment = {**os.environ, "PATH": str(tmp_path)}
    for name in ("CXX", "FORCE_CUDA"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "-e", tmp_path, "build_py", "-d", tmp_path],
        capture_output=True, text=True, cwd=SETUP.parent, timeout=300, env=environment,
    )  # fmt: skip
    assert "building without native code: there is no C++ compiler\n" in done.stderr
    assert (tmp_path / "fastseed/_backend/not_built.txt").read_text() == "there is no C++ compiler"
    assert (tmp_path / "fastseed" / "py.typed").exists()


@pytest.mark.slow
def test_source_distribution_has_every_source(tmp_path):
    """An sdist made with a CPU build of torch has the CUDA sources too."""
    git = subprocess.run(
        ["git", "ls-files", "csrc", "fastseed"], capture_output=True, text=True, cwd=SETUP.parent
    )
    if git.returncode:
        pytest.skip("this is no checkout of the repository")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "-e", tmp_path, "sdist", "-d", tmp_path],
        check=True, cwd=SETUP.parent, timeout=300,
    )  # fmt: skip
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert set(git.stdout.split()) <= names
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
