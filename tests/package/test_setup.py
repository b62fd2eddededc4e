"""What setup.py builds: no GPU is needed, and objects are compiled when something has changed."""

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
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
def toolkit(tmp_path, monkeypatch):
    """A toolkit whose nvcc knows two architectures, behind CUDA_HOME."""
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\necho compute_80; echo compute_120\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    return nvcc


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("8.0;12.0+PTX", ["80,code=[sm_80]", "120,code=[sm_120,compute_120]"]),
        ("8.0 9.0", ["80,code=[sm_80]"]),  # without what this nvcc does not know
        ("8.0+PTX, 12.0", ["80,code=[sm_80,compute_80]", "120,code=[sm_120]"]),
    ],
)
def test_setup_architectures_are_those_that_nvcc_knows(script, toolkit, wanted, expected):
    found = script.architectures(wanted, toolkit)
    assert found == [f"-gencode=arch=compute_{option}" for option in expected]


def test_setup_refuses_an_architecture_by_name(script, toolkit):
    with pytest.raises(SystemExit, match=r"must be as 9\.0 or 9\.0\+PTX, got Hopper"):
        script.architectures("8.0;Hopper", toolkit)


def test_setup_finds_nvcc_itself_and_not_a_link_to_it(script, toolkit, monkeypatch, tmp_path):
    link = tmp_path / "usual" / "nvcc"
    link.parent.mkdir()
    link.symlink_to(toolkit)
    assert script.find_nvcc() == toolkit
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("PATH", str(link.parent))
    assert script.find_nvcc() == toolkit


def test_setup_builds_the_cuda_part_where_torch_can_use_it(script, toolkit, monkeypatch, capsys):
    """No GPU is asked for, nor a toolkit of torch's version: the runtime is linked statically."""
    asked = script.cuda_library.__globals__
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    (library,) = script.cuda_library(["c++"], [])
    assert "csrc/cuda/derive.cu" in library.commands and "csrc/ops/cuda.cpp" in library.commands
    assert all((SETUP.parent / file).is_file() for file in library.commands)
    assert library.link.index("--no-as-needed") < library.link.index("-ltorch_cuda")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert script.cuda_library(["c++"], []) == []
    assert "without the CUDA part: torch was built without CUDA" in capsys.readouterr().err
    monkeypatch.setitem(asked, "FORCE_CUDA", True)
    assert len(script.cuda_library(["c++"], [])) == 1
    toolkit.unlink()
    with pytest.raises(SystemExit, match=r"FORCE_CUDA=1, but .*: there is no nvcc"):
        script.cuda_library(["c++"], [])


def test_setup_builds_generators_for_each_pair_of_the_file(script, monkeypatch, tmp_path):
    monkeypatch.delenv("FASTSEED_NO_EXT")
    monkeypatch.setenv("FASTSEED_NO_CUDA", "1")
    monkeypatch.setitem(script.extensions.__globals__, "named", lambda *_: [])
    monkeypatch.setitem(script.extensions.__globals__, "compiler", lambda: "c++")
    here = [library.file for library in script.extensions()]
    assert here[0].startswith("_kernels_") and len(here) == 2
    assert here[1].endswith(sysconfig.get_config_var("EXT_SUFFIX"))
    pairs = tmp_path / "pairs.txt"
    rows = (("2.10.0", "torch10", "python10", ".cp310.so"), ("2.11.0", "torch11", "p11", ".cp3.so"))
    pairs.write_text("".join("\t".join(row) + "\n" for row in rows))
    monkeypatch.setenv("FASTSEED_VARIANTS", str(pairs))
    _, *found = script.extensions()
    assert [library.file.partition("_torch_")[2] for library in found] == [
        "2_10.cp310.so", "2_11.cp3.so",
    ]  # fmt: skip
    (command,) = found[0].commands.values()
    assert {"-isystemtorch10", "-isystempython10"} <= set(command)


def test_pairs_are_those_of_the_index(monkeypatch):
    """The first release of each minor version from 2.10 on, as pip lists them: newest first."""
    monkeypatch.syspath_prepend(str(SETUP.parent / "tests" / "helpers"))
    import variants

    said = "torch (2.12.0)\nAvailable versions: 2.12.0, 2.11.1, 2.11.0+cpu, 2.11.0, 2.10.0, 2.9.1\n"
    monkeypatch.setattr(variants, "pip", lambda *_: said)
    found = variants.first_releases("3.11")
    assert found == {(2, 10): "2.10.0", (2, 11): "2.11.0", (2, 12): "2.12.0"}


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_setup_compiles_what_is_older_than_what_it_includes(script, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(script.call.__globals__, "ROOT", tmp_path)
    Path("b").mkdir()
    for name, text in (("a.h", "int a();"), ("a.cpp", '#include "a.h"'), ("b/a.cpp", "int b;")):
        Path(name).write_text(text)

    def made(*options):
        """The times at which the objects and the library were written."""
        command = ["c++", "-fPIC", *options]
        library = script.Library(
            "a.so",
            dict.fromkeys(("a.cpp", "b/a.cpp"), command),
            ["c++", "-Wl,--no-as-needed"],
            ("some",),
        )
        (out,) = script.compiled([library])
        assert b"libsome.so" in out.read_bytes()  # which is loaded with it
        return [path.stat().st_mtime_ns for path in (*sorted(out.parent.rglob("*.o")), out)]

    first = made()
    assert len(first) == 3 and made() == first
    Path("a.h").write_text("int a(int);")
    second = made()
    assert [new > old for new, old in zip(second, first, strict=True)] == [True, False, True]
    assert all(new > old for new, old in zip(made("-DB=$C"), second, strict=True))
    Path("a.cpp").write_text("nothing")
    with pytest.raises(SystemExit, match="nothing"):
        made()


def test_setup_says_where_ninja_comes_from(script, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(script.compiled.__globals__, "NINJA", ["no-ninja"])
    with pytest.raises(SystemExit, match="pip install ninja"):
        script.compiled([])


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
