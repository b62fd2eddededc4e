"""``fastseed verify --ranks``: a script under torchrun with several numbers of ranks, compared."""

import json
import os
import sys

import pytest
import torch
from helpers.paths import ROOT

import fastseed
from fastseed.cli import exit_codes, main
from fastseed.debug import Watch
from fastseed.tools import verify as package
from fastseed.tools.verify import runs

SCRIPT = str(ROOT / "tests" / "scripts" / "slots_any_ranks.py")
# In place of torchrun: copies the recordings of a number of ranks, as if ranks had made them.
LAUNCHER = """
import os, shutil, sys
count = sys.argv[sys.argv.index("--nproc-per-node") + 1]
assert os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
source = os.path.join(sys.argv[-1], count)
if os.path.isdir(source):
    shutil.copytree(source, os.path.join(os.environ["FASTSEED_RUN_DIR"], "watch"))
with open(os.path.join(sys.argv[-1], "started"), "a") as file:
    print(count, os.environ["OMP_NUM_THREADS"], os.environ.get("FASTSEED_MASTER_SEED"), file=file)
"""


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Return a function that records a run of some ranks, with a change at one step of one rank."""
    monkeypatch.setattr(runs, "TORCHRUN", (sys.executable, "-S", "-c", LAUNCHER))
    for name in ("OMP_NUM_THREADS", "FASTSEED_MASTER_SEED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def record(count: int, *, steps: int = 3, change=None, at=(-1, -1), draws: int = 0):
        for rank in range(count):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(count))
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            with Watch(model, optimizer, path=tmp_path / str(count)) as watch:
                for step in range(steps):
                    model(torch.ones(4, 2)).sum().backward()
                    optimizer.step()
                    torch.rand(draws)  # generators may differ
                    if (rank, step) == at:
                        change(model)
                    watch.record()
            monkeypatch.delenv("RANK")
            monkeypatch.delenv("WORLD_SIZE")
        return model

    return record


def compared(folder, counts, **options):
    return package.verify([sys.executable, "train.py", str(folder)], ranks=counts, **options)


def test_equal_runs(record, tmp_path):
    model = record(1)
    record(3, draws=5)
    found = compared(tmp_path, [1, 3], seed=7)
    digest = fastseed.debug.digest(model).hex
    assert found and [run[:3] for run in found.ranks] == [(1, 3, digest), (3, 3, digest)]
    assert (tmp_path / "started").read_text() == "1 1 7\n3 1 7\n"
    assert len(found.notes) == 1 and "all runs had OMP_NUM_THREADS=1" in found.notes[0]


def test_the_number_of_threads_of_the_environment_is_kept(record, tmp_path, monkeypatch):
    record(1)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    record(2)
    torch.set_num_threads(before)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = compared(tmp_path, [1, 2])
    assert (tmp_path / "started").read_text() == "1 3 None\n2 3 None\n"
    differ = f"threads differ: {before} with 1 rank; {before + 1} with 2 ranks"
    assert found and found.notes == (differ,)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("parameter 0.bias", lambda model: model[0].bias.data.add_(1)),
        ("buffer 1.running_mean", lambda model: model[1].running_mean.add_(1)),
        ("gradient 1.weight", lambda model: model[1].weight.grad.add_(1)),
    ],
)
def test_the_first_difference_is_named(record, tmp_path, name, change):
    record(1)
    record(2, change=change, at=(0, 1))
    found = compared(tmp_path, [1, 2])
    assert not found and found.ranks[0].difference is None
    group, _, tensor = name.partition(" ")
    ranks_differ = f"step 1: {name} differs between ranks of one run, first on rank 1"
    assert found.ranks[1].difference == ranks_differ
    found = compared(tmp_path, [2, 1])
    assert found.ranks[0].difference == ranks_differ
    assert f"step 1, {group} {tensor}: float32[" in found.ranks[1].difference


def test_a_run_with_other_steps_differs(record, tmp_path):
    record(1, steps=3)
    record(2, steps=2)
    found = compared(tmp_path, [1, 2])
    assert found.ranks[1].difference == "step 2: not recorded with 2 ranks"
    assert [run.steps for run in found.ranks] == [3, 2]


def test_other_weights_at_the_start_differ(record, tmp_path):
    record(1)
    record(2)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    with Watch(model, path=tmp_path / "3") as watch:
        watch.record()
    found = compared(tmp_path, [1, 2, 3])
    assert [bool(run.difference) for run in found.ranks] == [False, False, True]
    assert found.ranks[2].difference.startswith("before the first step, ")


def test_command(record, tmp_path, capsys):
    record(1)
    record(2)
    record(3, change=lambda model: model[0].bias.data.add_(1), at=(1, 2))
    arguments = ["--", "train.py", str(tmp_path)]
    assert main(["verify", "--ranks", "1,2", *arguments]) == exit_codes.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:2] == ["1", "3"] and lines[2].endswith("  equal")
    assert lines[-1] == "PASSED"
    assert main(["verify", "--ranks", "1,3", *arguments]) == exit_codes.FOUND
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].endswith("  DIFFERENT") and lines[-1] == "FAILED"
    assert "first difference: step 2: parameter 0.bias differs between ranks of one run" in lines[7]
    assert main(["verify", "--ranks", "1,3", "--json", *arguments]) == exit_codes.FOUND
    document = json.loads(capsys.readouterr().out)
    assert not document["passed"] and [run["ranks"] for run in document["ranks"]] == [1, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--ranks", "0,1"], "ranks[0] must be in [1, 1024], got 0"),
        (["--ranks", "1"], "ranks must be at least two different numbers, got [1]"),
        (["--ranks", "2,2"], "ranks must be at least two different numbers, got [2, 2]"),
        (["--ranks", "1,x"], "argument --ranks: "),
    ],
)
def test_command_checks_what_it_is_given(capsys, given, message):
    assert main(["verify", *given, "--", "train.py"]) == exit_codes.USAGE
    assert message in capsys.readouterr().err


def test_errors(record, tmp_path):
    with pytest.raises(ValueError, match="command must be a script that records"):
        compared(tmp_path, [1, 2])
    assert not list(tmp_path.rglob("ranks-2"))  # it is noticed in the first run
    with pytest.raises(RuntimeError, match="run ranks-1 ended with code 1"):
        compared(tmp_path / "x", [1, 2])


@pytest.fixture
def clean(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.slow
def test_sums_by_slot_are_the_same_on_any_number_of_ranks(clean):
    found = package.verify([sys.executable, SCRIPT, "slots"], ranks=[1, 3], timeout=200)
    assert found and found.ranks[0].digest == found.ranks[1].digest
    assert [run.steps for run in found.ranks] == [3, 3]
    control = package.verify([sys.executable, SCRIPT, "all_reduce"], ranks=[1, 3], timeout=200)
    assert not control and control.ranks[0].digest == found.ranks[0].digest
    assert control.ranks[1].difference.startswith("step 0, gradient 2.weight: float32[3, 16]")


@pytest.mark.slow
def test_the_output_of_the_rank_that_failed_is_shown(clean):
    with pytest.raises(RuntimeError) as raised:
        package.verify([sys.executable, SCRIPT, "failing"], ranks=[2, 1], timeout=200)
    assert "run ranks-2 ended with code 1" in str(raised.value)
    assert "ArithmeticError: the sum is wrong" in str(raised.value)
