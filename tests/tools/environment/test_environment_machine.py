"""Other machines: GPUs, modules, packages; and the comparison of captures."""

from __future__ import annotations

import json
import sys

import pytest

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import machine, packages
from fastseed.tools.environment.collect import Capture
from fastseed.tools.environment.commands import Runner
from fastseed.tools.environment.comparison import SEVERITIES, compare, severity
from fastseed.tools.environment.keyed_hash import Hasher

HASHER = Hasher(bytes(32))


def tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_an_empty_machine_is_no_error(tmp_path):
    assert machine.machine(tmp_path)["memory_kib"] == 0
    found = machine.gpu(Runner({}), HASHER, tmp_path)
    assert found == {"driver": "", "amd_driver": "", "devices": []}


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_gpus_have_hashed_uuids(tmp_path):
    row = "NVIDIA H200, GPU-11111111-2222, 570.1, 96.00, 143771, "
    row += "Enabled, Disabled, Default, Enabled, 700"
    program(tmp_path / "bin" / "nvidia-smi", f'echo "{row}"')
    runner = Runner({"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    found = machine.gpu(runner, HASHER, tmp_path)
    assert found["driver"] == "570.1" and found["devices"][0]["name"] == "NVIDIA H200"
    assert found["devices"][0]["uuid"].startswith("hmac:") and "GPU-1111" not in json.dumps(found)


def test_the_driver_without_its_program(tmp_path):
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 2024"
    root = tree(tmp_path, {"proc/driver/nvidia/version": line})
    found = machine.gpu(Runner({}), HASHER, root)
    assert found["driver"] == "535.161.07"


def test_modules_are_those_that_the_shell_recorded():
    loaded = "gcc/12.1:cuda/12.4:lang/python/3.11.2:token=x/1.0:word"
    found = packages.modules({"LOADEDMODULES": loaded}, HASHER)
    names = {name: value for name, value in found.items() if not name.startswith("hmac:")}
    assert names == {"gcc": "gcc/12.1", "cuda": "cuda/12.4", "lang/python": "lang/python/3.11.2"}
    assert len(found) == 5


def test_conda_packages_from_the_names_of_records(tmp_path):
    root = tree(tmp_path, {"conda-meta/mkl-2024.2-h0_1.json": "{", "conda-meta/history": ""})
    assert packages.conda({"CONDA_PREFIX": str(root)}) == {"mkl": "mkl-2024.2-h0_1"}
    assert packages.conda({}) == {}


def test_compilers_have_version_numbers_alone(tmp_path):
    program(tmp_path / "gcc", "echo 'gcc (secret 12.2.0-14) 12.2.0'")
    program(tmp_path / "my-cc", 'echo "release $1 V1.2"')
    runner = Runner({"PATH": str(tmp_path), "CC": "my-cc -3.4"})
    assert packages.compilers(runner) == {"gcc": "12.2.0", "CC": "3.4 1.2"}


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
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b")])
    found = packages.packages(HASHER)
    assert found == {"odd-name": {"version": "1", "hidden": ["2"]}}


# ---------------------------------------------------------------- comparing


def capture(**sections):
    return Capture({}, sections, {})


def test_a_replaced_library_is_critical_and_a_moved_one_low():
    def one(path, build):
        return capture(
            libraries={"libcudnn.so.9": [{"folder": path, "build_id": build, "size": 1}]}
        )

    (replaced,) = compare(one("/a", "11"), one("/a", "22"))
    assert (replaced.level, replaced.path) == ("critical", "libraries/libcudnn.so.9/identity")
    (moved,) = compare(one("/a", "11"), one("/b", "11"))
    assert moved.level == "low"


def test_kinds_and_values():
    found = compare(
        capture(packages={"a": {"version": "1"}, "b": {"version": "1"}}),
        capture(packages={"a": {"version": "2"}, "c": {"version": "1"}}),
    )
    assert {(d.path, d.kind, json.dumps([d.before, d.after])) for d in found} == {
        ("packages/a/version", "changed", '["1", "2"]'),
        ("packages/b", "removed", '[{"version": "1"}, null]'),
        ("packages/c", "added", '[null, {"version": "1"}]'),
    }


def test_true_is_not_one():
    assert len(compare(capture(torch={"x": True}), capture(torch={"x": 1}))) == 1


def why(path):
    return SEVERITIES[severity(path)][2]


def level(path):
    return SEVERITIES[severity(path)][0]


def test_every_section_has_severities():
    for section in environment.capture().sections:
        assert why(f"{section}/x") != "not in the table of severities", section
    run = "variables/FASTSEED_RUN_DIR"
    assert level(run) == "low"
    assert level("variables/FASTSEED_SEED") == "critical"
    assert level("variables/FASTSEED_RUN_DIRECTION") == "critical"
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
    a = write(tmp_path / "a", host={"name": "x"}, gpu={"driver": "1"})
    b = write(tmp_path / "b", host={"name": "y"}, gpu={"driver": "1"})
    c = write(tmp_path / "c", host={"name": "y"}, gpu={"driver": "2\x1b[2J"})
    assert main(["env", "diff", a, a]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert main(["env", "diff", a, b]) == 1
    assert main(["env", "diff", a, b, "--level", "critical"]) == 0
    capsys.readouterr()
    assert main(["env", "diff", a, c, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [d["path"] for d in document["differences"]] == ["gpu/driver", "host/name"]
    assert document["summary"] == {"critical": 1, "high": 0, "medium": 0, "low": 1}
    assert main(["env", "diff", a, c]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and shown.index("gpu/driver") < shown.index("host/name")


def test_show_prints_one_section_or_all(write, tmp_path, capsys):
    a = write(tmp_path / "a", host={"name": "x"}, gpu={"driver": "1", "devices": []})
    assert main(["env", "show", a, "--section", "gpu"]) == 0
    assert json.loads(capsys.readouterr().out) == {"gpu": {"driver": "1", "devices": []}}
    assert main(["env", "show", a, "--section", "nonsense"]) == 2
    assert "must be one of host, gpu" in capsys.readouterr().err
    assert main(["env", "show", a]) == 0
    assert "driver" in capsys.readouterr().out


def test_long_differences_are_cut_in_the_table_and_whole_in_json(write, tmp_path, capsys):
    a = write(tmp_path / "a", packages={f"p{i}": "1" for i in range(99)})
    b = write(tmp_path / "b", packages={f"p{i}": "2" for i in range(99)})
    assert main(["env", "diff", a, b]) == 1
    assert "59 more" in capsys.readouterr().out
    assert main(["env", "diff", a, b, "--all"]) == 1
    assert "more" not in capsys.readouterr().out
    assert len(environment.diff(a, b)) == 99
