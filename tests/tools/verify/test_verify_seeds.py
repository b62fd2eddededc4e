"""`fastseed verify --seeds`: what the seed does not reach, in outputs, losses and recordings."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import fastseed
from fastseed.cli import exit_codes, main
from fastseed.tools.verify import report as reports
from fastseed.tools.verify import verify
from fastseed.tools.verify.report import Report
from fastseed.tools.verify.runs import OTHER, WHOLE, Losses, Run

HEAD = "import json, os, random, sys; seed = int(sys.argv[1]); rng = random.Random(seed); "


def command(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", HEAD + text, "{seed}"]


def found(text: str, **options) -> dict[str, str]:
    report = verify(command(text), seeds=(3, 4, 5), kill=False, **options)
    assert all(row.ok for row in report.reach) == report.checks[-1].passed
    assert report.checks[-1].passed or not report
    return {row.leaf: row.verdict for row in report.reach}


@pytest.mark.parametrize(
    ("text", "part", "verdict"),
    [
        ("print(seed, rng.random())", "output", "good"),
        # EleutherAI/lm-evaluation-harness: the seed is printed and no server gets it
        ("print(f'{seed=}, limit=3'); print('exact match', 0.45)", "output", "constant"),
        ("print(f'seed {seed} step 3 limit=3'); print(f'run-{seed}: 0.5')", "output", "constant"),
        ("print(seed // 4 * 7)", "output", "constant"),
        ("print(os.getpid())", "output", "unrepeatable"),
        ("print(hash('noise') + seed)", "output", "unrepeatable"),
        ("print(json.dumps({'step': 0, 'loss': rng.random()})); print('x')", "losses", "good"),
        ("print(json.dumps({'step': 0, 'loss': 0.5})); print(seed + 10)", "losses", "constant"),
    ],
)
def test_what_a_program_prints(text, part, verdict):
    assert found(text) == {part: verdict}


def test_the_command(capsys):
    words = command("print(seed, 'score', 7)")
    options = ["verify", "--no-kill", "--seeds", "0,1,2"]
    assert main([*options, "--", *words]) == exit_codes.FOUND
    lines = capsys.readouterr().out.splitlines()
    assert "output  constant  the same for seeds 0, 1, 2" in lines
    assert any("every part follows the seed" in x and "output is constant" in x for x in lines)
    assert any("Watch(model) does that" in x for x in lines)
    assert lines[-1] == "FAILED"
    allowed = ["--allow", "output=constant,batch=constant"]
    assert main([*options, "--json", *allowed, "--", *words]) == exit_codes.OK
    row, absent = json.loads(capsys.readouterr().out)["reach"]
    assert (absent["leaf"], absent["verdict"], absent["ok"]) == ("batch", "absent", True)
    assert row == {
        "leaf": "output", "verdict": "constant", "ok": True,
        "detail": "allowed: the same for seeds 0, 1, 2",
    }  # fmt: skip


def test_the_seeds_of_the_runs():
    report = verify(command("print(seed, rng.random())"), seeds=(7, 2), times=3, kill=False)
    assert report
    seeds = [(run.name, run.command[-1]) for run in report.runs]
    assert seeds == [("whole-0", "7"), ("whole-1", "7"), ("whole-2", "7"), ("other-0", "2")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "1"], "seeds must be at least two different integers"),
        (["--seeds", "1,2", "--seed", "3"], "seeds must be given without seed, ranks"),
        (["--seeds", "1,2", "--ranks", "1,2"], "seeds must be given without seed, ranks"),
        (["--seeds", "1,2", "--no-other-seed"], "seeds must be given without seed, ranks"),
        (["--seeds", "1,2", "--allow", "batches"], "argument --allow: must be PART=VERDICT"),
        (["--seeds", "1,2", "--allow", "x=y"], "allow['x'] must be one of 'unrepeatable'"),
        (["--allow", "batches=constant"], "allow must be given with seeds"),
    ],
)
def test_wrong_options(capsys, options, message):
    assert main(["verify", *options, "x"]) == exit_codes.USAGE
    assert message in capsys.readouterr().err


def record(folder: Path, weights: int, batches: Iterable[int]) -> None:
    """Train with weights and batches from these seeds."""
    torch.manual_seed(weights)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with fastseed.debug.Watch(model, optimizer, path=folder, modules="") as watch:
        watch.attach()
        for seed in batches:
            torch.manual_seed(seed)
            optimizer.zero_grad()
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()


def reached(tmp_path, monkeypatch, batches, world=1, weights=int):
    """The verdicts about runs with seeds 0 (twice), 1 and 2; rank r gets batches(seed, r)."""
    runs = []
    for number, (experiment, seed) in enumerate([(WHOLE, 0), (WHOLE, 0), (OTHER, 1), (OTHER, 2)]):
        folder = tmp_path / str(number)
        for rank in range(world):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(world))
            record(folder, weights(seed), batches(seed, rank))
        losses = Losses({"0": float(seed)}, 0)
        runs.append(Run(experiment, 0, folder, folder, (), 0.0, False, (), (), losses))
    report = reports.with_reach(Report((), tuple(runs)), (0, 1, 2), {})
    assert report.notes == ()
    return {row.leaf: row.verdict for row in report.reach}


@pytest.mark.parametrize(
    ("batches", "verdict"),
    [
        (lambda seed, rank: range(100 * seed, 100 * seed + 4), "good"),
        (lambda seed, rank: [5, 6, 7, 8], "constant"),  # ultralytics/ultralytics#25815
        (lambda seed, rank: [seed + 90] * 4, "repeated"),  # manual_seed(seed) in each step
        (lambda seed, rank: [seed // 2 * 9, 5 + seed // 2], "constant"),
        (lambda seed, rank: [100 * seed, 100 * seed + 1] * 2, "repeated"),  # no set_epoch
        (lambda seed, rank: [seed + 50 + epoch for epoch in range(4)], "shifted"),
    ],
)
def test_batches_that_watch_recorded(tmp_path, monkeypatch, batches, verdict):
    assert reached(tmp_path, monkeypatch, batches) == {
        "losses": "good", "batches": verdict, "first weights": "good", "last weights": "good",
    }  # fmt: skip


def test_weights_that_do_not_follow_the_seed(tmp_path, monkeypatch):
    found = reached(tmp_path, monkeypatch, lambda seed, _: [100 * seed], weights=lambda seed: 7)
    assert found["first weights"] == "constant" and found["last weights"] == "good"


@pytest.mark.parametrize("axis", [False, True])
def test_ranks_have_batches_of_their_own_and_equal_weights(tmp_path, monkeypatch, axis):
    """With ``axis`` both ranks draw the same: mlcommons/training#844."""

    def batches(seed, rank):
        first = 100 * seed + (0 if axis else 10 * rank)
        return range(first, first + 3)

    found = reached(tmp_path, monkeypatch, batches, world=2)
    expected = "repeated" if axis else "good"
    assert found == {
        "losses": "good",
        **{f"rank{r}.{name} weights": "good" for r in range(2) for name in ("first", "last")},
        **{f"rank{r}.batches": expected for r in range(2)},
    }


SCRIPT = """\
import json, sys, numpy as np, torch, fastseed
from torch.utils.data import DataLoader, Dataset
seed = int(sys.argv[1])
torch.manual_seed(seed)
class Data(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.full((4,), float(index)) + torch.from_numpy(np.random.rand(4)).float()
def seed_worker(_):
    np.random.seed(torch.initial_seed() % 2**32)
start = torch.Generator().manual_seed(6148914691236517205)
loader = DataLoader(
    Data(), 4, shuffle=True, num_workers=2, generator=start, worker_init_fn=seed_worker
)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
fastseed.debug.Watch(model, optimizer, modules="").attach()
for step, batch in enumerate(loader):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    print(json.dumps({"step": step, "loss": loss.item()}))
"""


@pytest.mark.slow
def test_an_augmentation_that_ignores_the_seed(tmp_path):
    """ultralytics/ultralytics#25815: weights and losses follow the seed, the batches do not."""
    (tmp_path / "train.py").write_text(SCRIPT)
    words = [sys.executable, str(tmp_path / "train.py"), "{seed}"]
    report = verify(words, seeds=(0, 1, 2), kill=False)
    assert {row.leaf: row.verdict for row in report.reach} == {
        "losses": "good", "batches": "constant", "first weights": "good", "last weights": "good",
    }  # fmt: skip
    assert report.verdict == "failed"
