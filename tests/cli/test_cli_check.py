"""`fastseed check`: programs that are ended early, seeds by hash, one table for all ranks."""

import contextlib
import io
import json
import subprocess
import sys

import pytest
import torch.distributed as dist
from helpers.processes import clean_environment
from helpers.ranks import ranks

from fastseed import cli
from fastseed.cli import check
from fastseed.debug import generator_use as checkup
from fastseed.debug.generator_use import FINE, NOTE, WRONG, Row
from fastseed.debug.hashed_seeds import hashed_seeds
from fastseed.determinism import hash_seed

TRAIN = """
import torch, fastseed
fastseed.init(42, rank=0, world_size=1)
layer = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(layer.parameters())
for step in range(5):
    fastseed.reseed(1, 0, step)
    {line}
    optimizer.step()
    print("step", step)
"""


def checked(script, *words):
    """Return the exit code of a check, and its report."""
    code = cli.main(["check", "--json", *words, str(script)])
    return code


@pytest.mark.usefixtures("frozen_objects")
@pytest.mark.parametrize(("steps", "done"), [("2", 2), ("5", 5), ("9", 5)])
def test_a_program_ends_after_its_steps(tmp_path, capsys, steps, done):
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(line="pass"))
    assert checked(script, "--steps", steps) == 0
    printed = capsys.readouterr()
    assert printed.err.count("step ") == min(done, 5) - (steps != "9")
    report = json.loads(printed.out)
    assert report["program"] is None
    (scope,) = [row["detail"] for row in report["rows"] if row["item"] == "scope"]
    assert scope == f"task 1, epoch 0, step {done - 1}"


@pytest.mark.parametrize("steps", ["0", "-1"])
def test_steps_must_be_positive(tmp_path, capsys, steps):
    script = tmp_path / "train.py"
    script.write_text("raise AssertionError('it must not run')")
    assert checked(script, "--steps", steps) == 2
    assert f"--steps must be at least 1, got {steps}" in capsys.readouterr().err


@pytest.mark.usefixtures("frozen_objects")
def test_a_report_follows_ctrl_c(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(
        TRAIN.format(line="torch.manual_seed(3)\n    if step == 1: raise KeyboardInterrupt")
    )
    assert checked(script) == 130
    report = json.loads(capsys.readouterr().out)
    assert report["program"] == "Ctrl-C"
    (seeded, _) = [row for row in report["rows"] if row["item"] == "torch.manual_seed"]
    assert seeded["status"] == WRONG and "train.py:8; leave it out" in seeded["detail"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("rng = np.random.default_rng(hash(name))", True),
        ("torch.manual_seed(abs(hash(f'{name}')) % 2**32)", True),
        ("random.Random(hash(name))", True),
        ("seed = hash(name)", True),
        ("self.seed = 7 ^ hash(name)", True),
        ("env.reset(seed=hash(name))", True),
        ("table[hash(name)] = 1", False),
        ("seed = fastseed.derive_seed(name)", False),
        ("bucket = hash(name) % 8", False),
        ("reset(options=hash(name))", False),
        ("a line that is no Python: hash(", False),
    ],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_seeds_by_hash_are_named(tmp_path, monkeypatch, line, found, fixed):
    monkeypatch.setattr(hash_seed, "found", lambda: ("", 3 if fixed else None))
    monkeypatch.setattr("sys.modules", {"__main__": sys.modules["__main__"]})
    script = tmp_path / "train.py"
    script.write_text(f"# first\n{line}\n")
    rows = [row for row in hashed_seeds(str(script)) if "train.py" in row.detail]
    assert [row.status for row in rows] == [NOTE if fixed else WRONG] * found
    assert all("train.py:2; take fastseed.derive_seed(name)" in row.detail for row in rows)


def test_rows_of_all_ranks_are_one_table():
    common = Row("use", "1 scopes", WRONG, "used again")
    first = [Row("job", "master seed 42", FINE, "rank 0 of 3"), common, Row("use", "a", NOTE, "x")]
    other = [Row("job", "master seed 42", FINE, "rank 1 of 3"), common, Row("use", "b", FINE, "y")]
    third = [Row("job", "master seed 42", FINE, "rank 2 of 3"), common, Row("use", "c", WRONG, "z")]
    assert check._merged({0: first, 1: other, 2: third}, 3) == [
        Row("job", "master seed 42", FINE, "rank 0 of 3"),
        common,
        Row("use", "rank 0: a", NOTE, "x"),
        Row("use", "rank 2: c", WRONG, "z"),
    ]
    third[0] = Row("job", "master seed 7", FINE, "rank 2 of 3")
    *_, row = check._merged({0: first, 1: other, 2: third}, 3)
    assert row.status == WRONG
    assert row.detail == "differ: master seed 42, master seed 7; pass the same to init"
    *_, row = check._merged({0: first, 1: other}, 3)
    assert row == Row("ranks", "rank 2", WRONG, "did not end within 60 seconds of rank 0")


RANKS = """
import torch, torch.distributed as dist, fastseed
dist.init_process_group("gloo")
fastseed.init(42)
fastseed.reseed(1)
generator = torch.Generator()
if dist.get_rank() == 0:
    torch.rand(3, generator=generator)
else:
    torch.backends.cudnn.benchmark = True
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_prints_one_table_and_ends_with_one_code(tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    words = ("--standalone", "--nproc-per-node", "2", "-m", "fastseed", "check", str(script))
    done = launched(words)
    assert done.returncode == 1
    for text in ("topic ", "rank 0: torch.Generator", "rank 1: cuDNN benchmark"):
        assert done.stdout.count(text) == 1
    script.write_text(RANKS.replace("get_rank() == 0", "get_rank() == 3"))
    done = launched(words)
    assert done.returncode == 0 and done.stdout.count("topic ") == 1


def launched(words):
    """Run torchrun."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        capture_output=True, text=True, timeout=120, env=clean_environment(),
    )  # fmt: skip


PROGRAM = """
import fastseed, torch.distributed as dist
group, dist.is_initialized = dist.is_initialized, lambda: False  # init would wait for all ranks
fastseed.init(42, rank={rank}, world_size=2)
dist.is_initialized = group
fastseed.reseed(1, {epoch})
"""


def check_rank(case, folder):
    """Return the exit code of the command on this rank, and its row about ranks."""
    rank = dist.get_rank()
    program = PROGRAM.format(rank=rank, epoch=rank * (case == "another epoch"))
    script = folder / f"{rank}.py"
    script.write_text("" if case == "no init" and rank == 1 else program)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main(["check", "--json", str(script)])
    rows = json.loads(printed.getvalue())["rows"]
    return code, *(row for row in rows if row["topic"] == "ranks")


def test_ranks_that_agree(tmp_path):
    for code, row in ranks(2, check_rank, "agree", tmp_path):
        assert code == 0 and row["status"] == checkup.FINE and row["detail"] == "2 ranks agree"


@pytest.mark.parametrize(
    ("case", "says"), [("another epoch", "scope is epoch"), ("no init", "call fastseed.init")]
)
def test_ranks_that_do_not_agree(tmp_path, case, says):
    """Both report it at once: neither waits for the other."""
    found = ranks(2, check_rank, case, tmp_path)
    for code, row in found:
        assert code == 1 and row["status"] == checkup.WRONG and says in row["detail"]
    assert "rank 1" in found[0][1]["detail"]


@pytest.mark.usefixtures("frozen_objects")
def test_a_job_of_one_has_no_ranks(tmp_path, capsys):
    script = tmp_path / "one.py"
    script.write_text("import fastseed\nfastseed.init(42, rank=0, world_size=1)\n")
    cli.main(["check", "--json", str(script)])
    assert "ranks" not in {row["topic"] for row in json.loads(capsys.readouterr().out)["rows"]}


@pytest.mark.usefixtures("frozen_objects")
def test_a_job_of_several_without_a_process_group(tmp_path, capsys):
    """The same as for a job that has closed it."""
    script = tmp_path / "several.py"
    script.write_text("import fastseed\nfastseed.init(42, rank=1, world_size=2)\n")
    cli.main(["check", "--json", str(script)])
    rows = json.loads(capsys.readouterr().out)["rows"]
    (row,) = [row for row in rows if row["topic"] == "ranks"]
    assert (
        row["status"] == checkup.NOTE and row["detail"] == "not checked: there is no process group"
    )
