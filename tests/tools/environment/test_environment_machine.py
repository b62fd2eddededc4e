"""Machines that are not this one: control groups, containers, GPUs, clusters, other packages."""

from __future__ import annotations

import json
import sys

import pytest

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import gpu, hpc, machine, schema, storage
from fastseed.tools.environment import packages as software
from fastseed.tools.environment.commands import Runner
from fastseed.tools.environment.comparison import compare
from fastseed.tools.environment.schema import Capture
from fastseed.tools.environment.severity import LEVELS, rank


def tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_cgroup_v2_takes_the_tightest_limit_of_all_groups_above(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/step\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory",
            "sys/fs/cgroup/job/step/cpu.max": "400000 100000",
            "sys/fs/cgroup/job/cpu.max": "150000 100000",
            "sys/fs/cgroup/job/step/memory.max": "max",
            "sys/fs/cgroup/job/memory.max": "1073741824",
            "sys/fs/cgroup/job/step/cpuset.cpus.effective": "0-3",
        },
    )
    about = machine.container(root)
    assert about["cgroup"] == 2
    assert about["cgroup_limits"] == {
        "cpu.max": "150000 100000",
        "cpuset.cpus.effective": "0-3",
        "memory.max": "1073741824",
    }


def test_cgroup_v1_reads_each_controller_where_it_is_mounted(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/init\n",
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2048",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000",
            ".dockerenv": "",
        },
    )
    about = machine.container(root)
    assert about["cgroup"] == 1 and about["kind"] == ["docker"]
    assert about["cgroup_limits"] == {
        "cpu.cfs_period_us": "100000",
        "memory.limit_in_bytes": "2048",
    }


def test_an_empty_machine_is_no_error(tmp_path):
    assert machine.machine(tmp_path)["memory_kib"] == 0
    assert machine.container(tmp_path)["cgroup"] == 0
    assert hpc.system_packages(Runner(environ={}), tmp_path) == {}
    assert gpu.gpu(Runner(environ={}), False, tmp_path) == {"driver": "", "devices": []}


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_gpus_have_hashed_uuids_and_clocks_only_when_asked(tmp_path):
    row = "0, NVIDIA H200, GPU-11111111-2222, 570.1, 96.00, 143771, "
    row += "Enabled, Disabled, Default, Enabled, 700"
    clocks = "1980, 3201, 1980, 3201, 1980, 3201, 41"
    text = f'case "$1" in *clocks*) echo "{row}, {clocks}";; *) echo "{row}";; esac'
    program(tmp_path / "bin" / "nvidia-smi", text)
    runner = Runner(environ={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    found = gpu.gpu(runner, False, tmp_path)
    assert found["driver"] == "570.1" and found["devices"][0]["name"] == "NVIDIA H200"
    assert "clocks" not in found["devices"][0] and "GPU-1111" not in json.dumps(found)
    assert len(found["devices"][0]["uuid_sha256"]) == 16
    assert gpu.gpu(runner, True, tmp_path)["devices"][0]["clocks"]["clocks.current.sm"] == "1980"


def test_the_driver_without_its_program(tmp_path):
    line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 2024"
    root = tree(tmp_path, {"proc/driver/nvidia/version": line})
    assert gpu.gpu(Runner(environ={}), False, root)["driver"] == "535.161.07"


@pytest.mark.parametrize("variable", ["LMOD_CMD", "MODULES_CMD"])
def test_module_list_of_both_implementations(tmp_path, variable):
    program(tmp_path / "modulecmd", "echo 'Currently Loaded Modulefiles:' >&2; echo gcc/12.2 >&2")
    environ = {variable: str(tmp_path / "modulecmd"), "LOADEDMODULES": "gcc/12.1", "PATH": ""}
    found = hpc.modules(Runner(environ=environ))
    assert found == {"loaded": ["gcc/12.2"], "recorded": ["gcc/12.1"]}


def test_modules_as_the_shell_recorded_them_without_a_program():
    environ = {"LOADEDMODULES": "gcc/12.1:cuda/12.4", "PATH": "", "LMOD_CMD": "/gone"}
    assert hpc.modules(Runner(environ=environ))["loaded"] == ["gcc/12.1", "cuda/12.4"]


def test_conda_packages_without_conda(tmp_path):
    good = {"name": "mkl", "version": "2024.2", "build": "h0_1", "channel": "defaults"}
    root = tree(
        tmp_path,
        {
            "conda-meta/mkl.json": json.dumps(good),
            "conda-meta/bad.json": "{",
            "conda-meta/c.json": "[]",
        },
    )
    assert sys.prefix  # not a conda environment in these tests, or the next line finds its own
    found = hpc.conda({"CONDA_PREFIX": str(root)})
    assert "mkl" in found["packages"] and found["packages"]["mkl"].startswith("2024.2")


def test_dpkg_and_rpm(tmp_path):
    paragraph = "Package: {}\nStatus: install ok {}\nArchitecture: amd64\nVersion: 1.0-{}\n"
    status = "\n".join([paragraph.format("a", "installed", 1), paragraph.format("b", "not", 2)])
    root = tree(tmp_path / "deb", {"var/lib/dpkg/status": status})
    assert hpc.system_packages(Runner(environ={}), root) == {"a:amd64": "1.0-1"}
    root = tree(tmp_path / "rpm", {"var/lib/rpm/x": ""})
    program(tmp_path / "bin" / "rpm", "printf 'glibc:x86_64 2.34-1\\n'")
    runner = Runner(environ={"PATH": f"{tmp_path}/bin"})
    assert hpc.system_packages(runner, root) == {"glibc:x86_64": "2.34-1"}


def test_scheduler_variables_are_sorted_by_whose_they_are():
    found = hpc.scheduler({"SLURM_JOB_ID": "1", "OMPI_COMM_WORLD_RANK": "0", "OMP_X": "1"})
    assert found == {"slurm": {"SLURM_JOB_ID": "1"}, "openmpi": {"OMPI_COMM_WORLD_RANK": "0"}}


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
    found = software.packages()
    assert found == {"odd-name": {"version": "1", "origin": "unreadable", "hidden": ["2"]}}


# ---------------------------------------------------------------- comparing


def capture(**sections):
    return Capture({}, sections, {})


def test_a_replaced_library_matters_and_a_moved_one_does_not():
    def one(path, build):
        return capture(libraries={"libcudnn.so.9": [{"path": path, "build_id": build, "size": 1}]})

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


def test_every_section_has_ranks():
    for section in schema.SECTIONS:
        assert rank(f"{section}/x").why != "nothing is known of it", section
    run = rank("variables/FASTSEED_RUN_DIR")  # another one in every run
    assert run.level == "low" and run.place > rank("system_packages/x").place
    assert rank("variables/FASTSEED_SEED").level == "critical"
    assert rank("variables/FASTSEED_RUN_DIRECTION").level == "critical"
    assert rank("new_section/x") == (rank("y/z").place, "medium", "nothing is known of it")
    assert {rank(p).level for p in ("gpu/driver", "packages/x", "machine/x", "host/x")} == set(
        LEVELS
    )


def write(path, **sections):
    storage.write("f", path, capture(**sections), False)
    return str(path)


def test_the_command_tells_by_its_exit_code(tmp_path, capsys):
    a = write(tmp_path / "a", host={"name": "x"}, gpu={"driver": "1"})
    b = write(tmp_path / "b", host={"name": "y"}, gpu={"driver": "1"})
    c = write(tmp_path / "c", host={"name": "y"}, gpu={"driver": "2\x1b[2J"})
    assert main(["env", "diff", a, a]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert main(["env", "diff", a, b]) == 1
    assert main(["env", "diff", a, b, "--level", "critical"]) == 0
    capsys.readouterr()
    assert main(["env", "diff", a, c, "--json"]) == 1
    schema = json.loads(capsys.readouterr().out)
    assert [d["path"] for d in schema["differences"]] == ["gpu/driver", "host/name"]
    assert schema["summary"] == {"critical": 1, "high": 0, "medium": 0, "low": 1}
    assert main(["env", "diff", a, c]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and shown.index("gpu/driver") < shown.index("host/name")


def test_show_prints_one_section_or_all(tmp_path, capsys):
    a = write(tmp_path / "a", host={"name": "x"}, gpu={"driver": "1", "devices": []})
    assert main(["env", "show", a, "--section", "gpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"gpu": {"driver": "1", "devices": []}}
    assert main(["env", "show", a, "--section", "nonsense"]) == 2
    assert "must be one of host, gpu" in capsys.readouterr().err
    assert main(["env", "show", a]) == 0
    assert "driver" in capsys.readouterr().out


def test_long_differences_are_cut_in_the_table_and_whole_in_json(tmp_path, capsys):
    a = write(tmp_path / "a", system_packages={f"p{i}": "1" for i in range(99)})
    b = write(tmp_path / "b", system_packages={f"p{i}": "2" for i in range(99)})
    assert main(["env", "diff", a, b]) == 1
    assert "59 more" in capsys.readouterr().out
    assert main(["env", "diff", a, b, "--all"]) == 1
    assert "more" not in capsys.readouterr().out
    assert len(environment.diff(a, b)) == 99
