"""Other machines: GPUs, modules, packages; and the comparison of captures."""

from __future__ import annotations

import json
import sys

import pytest

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import packages, system
from fastseed.tools.environment.collect import Capture
from fastseed.tools.environment.commands import Runner
from fastseed.tools.environment.comparison import compare, severity


def tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


SMI = """case "$1" in
  -L) echo "GPU 0: NVIDIA H200 (UUID: GPU-11111111-2222)" ;;
  *) echo "| NVIDIA-SMI 570.1   Driver Version: 570.1   CUDA Version: 13.0 |" ;;
esac"""


def test_the_driver_gpus_and_compilers(tmp_path):
    program(tmp_path / "bin" / "nvidia-smi", SMI)
    program(tmp_path / "bin" / "gcc", "echo 'gcc (Debian 12.2.0-14) 12.2.0'")
    program(tmp_path / "bin" / "lscpu", "echo 'Model name: X'; echo 'CPU MHz: 2817.3'")
    program(tmp_path / "bin" / "dpkg-query", "echo 'libc6 2.36'; echo 'removed '")
    runner = Runner({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    found = system.hardware(runner)
    assert (found["driver"], found["gpus"]) == ("570.1", "GPU 0: NVIDIA H200")
    assert found["compilers"]["gcc_version"] == "(Debian 12.2.0-14) 12.2.0"
    assert found["cpu"] == {"Model name": "X"} and found["memory"] > 0
    assert packages.apt(runner) == {"libc6": "2.36"}


def test_modules_are_those_that_the_shell_recorded():
    loaded = "gcc/12.1:cuda/12.4:lang/python/3.11.2:token=x/1.0:word"
    assert packages.modules({"LOADEDMODULES": loaded}) == {
        **{"gcc": "gcc/12.1", "cuda": "cuda/12.4", "lang/python": "lang/python/3.11.2"},
        "(redacted)": "(redacted)",
    }


def test_conda_packages_from_the_names_of_records(tmp_path):
    root = tree(tmp_path, {"conda-meta/mkl-2024.2-h0_1.json": "{", "conda-meta/history": ""})
    assert packages.conda({"CONDA_PREFIX": str(root)}) == {"mkl": "mkl-2024.2-h0_1"}
    assert packages.conda({}) == {}


def test_packages_with_damaged_records_and_hidden_versions(tmp_path, monkeypatch):
    head = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
    tree(
        tmp_path,
        {
            "a/Odd_Name-1.dist-info/METADATA": head.format("Odd_Name", 1),
            "a/Odd_Name-1.dist-info/direct_url.json": "{broken",
            "b/odd.name-2.dist-info/METADATA": head.format("odd.name", 2),
            "a/nameless-1.dist-info/METADATA": "Metadata-Version: 2.1\n",
        },
    )
    commit = {"url": "https://e.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "1" * 40}}
    editable = {"url": f"file://{tmp_path}/m", "dir_info": {"editable": True}}
    for name, origin in (("pinned", commit), ("mine", editable)):
        folder = tmp_path / "a" / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(head.format(name, 1))
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b")])
    monkeypatch.setenv("PYTHONPATH", "/x")
    assert packages.packages() == {
        "mine": "1, editable",
        "odd-name": "1, hides 2",
        "pinned": f"1, commit {'1' * 40}",
    }
    folders = {name: str(path) for name, path in packages.source_folders().items()}
    assert folders == {"mine": f"{tmp_path}/m", "path-1": "/x"}


# ---------------------------------------------------------------- comparing


def capture(**sections):
    return Capture({}, sections, {})


def test_values_that_one_capture_lacks():
    found = compare(
        capture(packages={"a": "1", "b": "1"}), capture(packages={"a": "2", "c": {"x": "1"}})
    )
    assert [(d.path, d.before, d.after) for d in found] == [
        *(("packages/a", "1", "2"), ("packages/b", "1", None)),
        ("packages/c", None, {"x": "1"}),
    ]


def test_differences_are_sorted_by_severity():
    levels = {
        **{"git/commit": "critical", "hardware/driver": "critical", "packages/torch": "critical"},
        **{"torch/cudnn": "critical", "variables/LD_PRELOAD": "critical"},
        **{"packages/frobnicator": "high", "hardware/kernel": "medium"},
        **{"variables/EDITOR": "low", "variables/FASTSEED_RUN_DIR": "low"},
    }
    a, b = {}, {}
    for path in levels:
        section, _, name = path.partition("/")
        a.setdefault(section, {})[name], b.setdefault(section, {})[name] = "1", "2"
    found = compare(capture(**a), capture(**b))
    assert {one.path: one.level for one in found} == levels
    assert [one.level for one in found] == ["critical"] * 5 + ["high", "medium", "low", "low"]


def test_true_is_not_one():
    assert len(compare(capture(torch={"x": True}), capture(torch={"x": 1}))) == 1


def test_every_section_has_severities():
    for section in environment.capture().sections:
        assert severity(f"{section}/x")[1] != "not in the table of severities", section
    run = "variables/FASTSEED_RUN_DIR"
    assert severity(run)[0] == "low" and severity(f"{run}ECTION")[0] == "critical"
    assert severity("variables/FASTSEED_SEED")[0] == "critical"
    assert severity("new_section/x") == severity("y/z")


@pytest.fixture
def write(monkeypatch):
    """Write a made-up capture, and return its folder."""

    def write(path, **sections):
        with monkeypatch.context() as patch:
            patch.setattr(environment, "collect", lambda patches: capture(**sections))
            environment.capture(path)
        return str(path)

    return write


def test_exit_codes_of_diff(write, tmp_path, capsys):
    a = write(tmp_path / "a", variables={"HOST": "x"}, hardware={"driver": "1"})
    b = write(tmp_path / "b", variables={"HOST": "y"}, hardware={"driver": "1"})
    c = write(tmp_path / "c", variables={"HOST": "y"}, hardware={"driver": "2\x1b[2J"})
    assert main(["env", "diff", a, a]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert main(["env", "diff", a, b]) == 1
    assert main(["env", "diff", a, b, "--level", "critical"]) == 0
    capsys.readouterr()
    assert main(["env", "diff", a, c, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [d["path"] for d in document["differences"]] == ["hardware/driver", "variables/HOST"]
    assert document["summary"] == {"critical": 1, "high": 0, "medium": 0, "low": 1}
    assert main(["env", "diff", a, c]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and shown.index("hardware/driver") < shown.index("variables/HOST")


def test_show_prints_one_section_or_all(write, tmp_path, capsys):
    a = write(tmp_path / "a", variables={"HOST": "x"}, git={"commit": "1", "files": []})
    assert main(["env", "show", a, "--section", "git"]) == 0
    assert json.loads(capsys.readouterr().out) == {"git": {"commit": "1", "files": []}}
    assert main(["env", "show", a, "--section", "nonsense"]) == 2
    assert "must be one of variables, git" in capsys.readouterr().err
    assert main(["env", "show", a]) == 0
    assert "commit" in capsys.readouterr().out


def test_long_differences_are_cut_in_the_table_and_whole_in_json(write, tmp_path, capsys):
    a = write(tmp_path / "a", packages={f"p{i}": "1" for i in range(99)})
    b = write(tmp_path / "b", packages={f"p{i}": "2" for i in range(99)})
    assert main(["env", "diff", a, b]) == 1
    assert "59 more" in capsys.readouterr().out
    assert main(["env", "diff", a, b, "--all"]) == 1
    assert "more" not in capsys.readouterr().out
    assert len(environment.diff(a, b)) == 99
