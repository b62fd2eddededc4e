"""Planted differences, and which of them a capture and other tools find."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.repositories import git, repository
from helpers.support import SCRIPTS, clean_environment

from fastseed.tools import environment

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "environment.md"
# Name of a planted difference, and what a differing line of an output has to hold.
PLANTED = {
    "a preloaded library": r"libpreloaded",
    "the GPU driver": r"\b550\.2\b",
    "a package's version": r"frobnicator.*1\.1",
    "the version of a package named after torch": r"torchfrob.*1\.1",
    "the commit of a package from git": r"2222222",
    "an uncommitted change of an editable package": r"mylib.*(diff|a\.py)",
    "a mapped library, replaced under its name": r"libmapped",
    "cuDNN's `benchmark`": r"cudnn.*benchmark",
    "`OMP_NUM_THREADS`": r"num_threads|OMP_NUM_THREADS",
    "`CUBLAS_WORKSPACE_CONFIG`": r"CUBLAS_WORKSPACE_CONFIG",
    "`PYTHONHASHSEED`": r"PYTHONHASHSEED",
    "a loaded module": r"cudnn/9\.9",
    "the working folder's commit": r"commit|[Gg]it hash",
}
TOOLS = {
    "fastseed": "`fastseed env`",
    "collect_env": "`torch.utils.collect_env`",
    "watermark": "`watermark`",
    "pip_freeze": "`pip freeze`, compared",
}
SMI = """#!/bin/sh
case "$1" in
  --query-gpu=name,uuid*) echo "NVIDIA X, GPU-1, {0}, v, 1, N/A, N/A, Default, Enabled, 700" ;;
  --query*) echo "NVIDIA X" ;;
  -L) echo "GPU 0: NVIDIA X (UUID: GPU-1)" ;;
  *) echo "| NVIDIA-SMI {0}   Driver Version: {0}   CUDA Version: 13.0 |" ;;
esac
"""


def distribution(site, name, version, direct_url=None):
    shutil.rmtree(site / f"{name}.dist-info", ignore_errors=True)
    folder = site / f"{name}-{version}.dist-info"
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("pip\n")
    if direct_url:
        (folder / "direct_url.json").write_text(json.dumps(direct_url))


def library(path, number):
    source = path.with_suffix(".c")
    source.write_text(f"int planted_{path.stem}(void) {{ return {number}; }}\n")
    command = ["cc", "-shared", "-fPIC", "-Wl,--build-id", "-o", path, source]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    source.unlink()


def plant(root, second):
    """Make the first or the second world; return its environment and arguments."""
    work, site, mine, programs = (root / n for n in ("work", "site", "mylib", "bin"))
    for folder in (site, programs):
        folder.mkdir(exist_ok=True)
    for folder in (work, mine):
        if not folder.exists():
            repository(folder)
    if second:
        git(work, "commit", "-q", "--allow-empty", "-m", "two")
        (mine / "a.py").write_text("x = 2\n")
    distribution(site, "frobnicator", "1.1" if second else "1.0")
    distribution(site, "torchfrob", "1.1" if second else "1.0")
    commit = {"vcs": "git", "commit_id": ("2" if second else "1") * 40}
    distribution(site, "pinned", "1.0", {"url": "https://e.org/p.git", "vcs_info": commit})
    editable = {"url": f"file://{mine}", "dir_info": {"editable": True}}
    distribution(site, "mylib", "1.0", editable)
    library(root / "libmapped.so", 2 if second else 1)
    library(root / "libpreloaded.so", 1)
    smi = programs / "nvidia-smi"
    smi.write_text(SMI.format("550.2" if second else "550.1"))
    smi.chmod(0o755)
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{site}:{ROOT}",
        "LOADEDMODULES": "gcc/12:cudnn/9.9" if second else "gcc/12:cudnn/9.8",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "FASTSEED_CAPTURE_KEY": str(root / "key"),
    }
    if second:
        environ |= {
            "LD_PRELOAD": str(root / "libpreloaded.so"),
            "CUBLAS_WORKSPACE_CONFIG": ":16:8",
            "OMP_NUM_THREADS": "2",
            "PYTHONHASHSEED": "1",
        }
    return environ, [root / "libmapped.so", int(second)]


def world(root, second):
    """Return the folder with the output of each installed tool on one process."""
    environ, arguments = plant(root, second)
    folder = root / f"output{int(second)}"
    command = [sys.executable, SCRIPTS / "environment_baselines.py", *arguments, folder]
    done = subprocess.run(
        list(map(str, [*command, *filter(is_here, TOOLS)])),
        cwd=root / "work",
        env=clean_environment(**environ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


def is_here(tool):
    needed = {"watermark": "watermark", "pip_freeze": "pip"}.get(tool)
    return needed is None or importlib.util.find_spec(needed) is not None


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    root = tmp_path_factory.mktemp("worlds")
    return world(root, False), world(root, True)


def differing(worlds, tool):
    """Return the lines in which the outputs of a tool differ."""
    if tool == "fastseed":
        return [
            f"{d.path}: {json.dumps(d.before)} -> {json.dumps(d.after)}"
            for d in environment.diff(*(folder / tool for folder in worlds))
        ]
    a, b = (set((folder / f"{tool}.txt").read_text().splitlines()) for folder in worlds)
    return sorted(a ^ b)


def documented():
    """Return tool -> what the table in the documentation says that it finds."""
    found: dict[str, set[str]] = {tool: set() for tool in TOOLS}
    rows = re.findall(r"^\| (.+?) \|(.*)\|$", DOCUMENT.read_text(), re.M)
    for name, cells in rows:
        if name in PLANTED:
            for tool, cell in zip(TOOLS, cells.split("|"), strict=True):
                if cell.strip() == "yes":
                    found[tool].add(name)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler to plant libraries")
@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_finds_what_the_table_says(worlds, tool):
    if not is_here(tool):
        pytest.skip(f"{tool} is not installed")
    lines = differing(worlds, tool)
    found = {name for name, mark in PLANTED.items() if any(re.search(mark, one) for one in lines)}
    assert found == documented()[tool], "\n".join(lines)
    if tool == "fastseed":
        assert found == set(PLANTED)


def test_differences_are_sorted_by_severity():
    levels = [
        "preload/LD_PRELOAD", "gpu/driver", "torch/cudnn", "packages/torch/version",
        "packages/frobnicator/version", "machine/kernel", "host/name",
    ]  # fmt: skip
    a, b = ({"host": {"name": n}, "gpu": {"driver": n}, "torch": {"cudnn": n},
             "preload": {"LD_PRELOAD": [{"name": n}]}, "machine": {"kernel": n},
             "packages": {"torch": {"version": n}, "frobnicator": {"version": n}}}
            for n in ("1", "2"))  # fmt: skip
    found = environment.diff(environment.Capture({}, a, {}), environment.Capture({}, b, {}))
    assert [one.path for one in found] == levels
    assert [one.level for one in found] == ["critical"] * 4 + ["high", "medium", "low"]
