"""`verify` on a small training script, without a fault and with planted faults.

Each run imports torch, so that most of these tests are slow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastseed.tools.verify import Report, verify

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "small_training.py"

RACE = '''
class Racing(torch.autograd.Function):
    """Its gradient is a sum in the order in which threads run, as with atomics."""

    @staticmethod
    def forward(ctx, weight):
        ctx.save_for_backward(weight)
        return weight.mean()

    @staticmethod
    def backward(ctx, gradient):
        import os
        import time
        from concurrent.futures import ThreadPoolExecutor

        (weight,) = ctx.saved_tensors
        total = torch.zeros_like(weight)
        parts = [1e8, -1e8, 1.0] * 80  # a one counts only while the large parts cancel

        def add(part):
            time.sleep(os.urandom(1)[0] * 1e-6)  # some threads are late, whatever the load is
            total.add_(torch.full_like(weight, part))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, parts))
        return 1e-3 * total * gradient


def penalty(weight: torch.Tensor) -> torch.Tensor:
    return Racing.apply(weight)
'''

# Fault -> replacements in the script.
PLANTED = {
    "resume": [
        ("            fastseed.reseed(1, epoch)\n", ""),
        (
            "    with (\n",
            "    if state:\n"
            '        torch.set_rng_state(state["torch"])\n'
            "        model(torch.from_numpy(points.x))  # uses random numbers, for its dropout\n"
            "    with (\n",
        ),
        ("    saved = {\n", '    saved = {\n        "torch": torch.get_rng_state(),\n'),
    ],
    "arithmetic": [
        (
            "\ndef penalty(weight: torch.Tensor) -> torch.Tensor:\n"
            "    return 0.01 * weight.square().sum()\n",
            RACE,
        ),
    ],
    "checkpoint": [('        optimizer.load_state_dict(state["optimizer"])\n', "")],
}  # fmt: skip


def write_script(folder: Path, fault: str | None) -> Path:
    text = SCRIPT.read_text()
    for old, new in PLANTED.get(fault, ()):
        assert text.count(old) == 1, (fault, old)
        text = text.replace(old, new)
    script = folder / "train.py"
    script.write_text(text)
    return script


def verified(folder: Path, fault: str | None, **options) -> Report:
    script = [sys.executable, str(write_script(folder, fault)), "--log", "{run}/log.jsonl"]
    save = ["--seed", "{seed}", "--checkpoint", "{run}/c.pt"]
    given = {
        "stop": [*script, *save, "--epochs", "2"],
        "resume": [
            *script,
            "--resume",
            "{run}/c.pt",
            "--checkpoint",
            "{run}/d.pt",
            "--epochs",
            "4",
        ],
        **{"log": "log.jsonl", "times": 1, "other_seed": False, "timeout": 200},
        **options,
    }
    return verify([*script, *save, "--epochs", "4"], **given)


@pytest.mark.slow
def test_no_fault(tmp_path):
    report = verified(tmp_path, None, times=2, other_seed=True)
    assert report and report.notes == (), report.checks


@pytest.mark.slow
def test_a_checkpoint_without_the_optimizer(tmp_path):
    report = verified(tmp_path, "checkpoint")
    _, stop, resume, _ = report.checks
    assert stop.passed and not resume.passed
    assert " at step 9: " in resume.message  # the first update with another momentum
    assert "optimizer 0.weight.momentum_buffer" in resume.message


@pytest.mark.slow
def test_a_generator_used_before_resuming(tmp_path):
    report = verified(tmp_path, "resume")
    assert report.checks[1].passed and not report.checks[2].passed
    assert " at step 8, rank 0: generator torch.cpu: " in report.checks[2].message


@pytest.mark.slow
def test_a_sum_in_the_order_of_threads(tmp_path):
    report = verified(tmp_path, "arithmetic", times=2, stop=None, resume=None, kill=False)
    assert not report.checks[0].passed
    assert "gradient" in report.checks[0].message


RESTARTED = """
import os, sys, time, torch, fastseed
path = os.path.join(sys.argv[1], "checkpoint")
fastseed.init()
fastseed.reseed(1)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
begin = 0
if os.path.exists(path):
    state = torch.load(path)
    begin = state["step"]
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
watch = fastseed.debug.Watch(model, optimizer, step=begin).attach()
for step in range(begin, 10):
    fastseed.reseed(1, 0, step)
    optimizer.zero_grad()
    model(torch.rand(3, 2)).square().sum().backward()
    optimizer.step()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"step": step + 1, **states}, path + ".new")
    os.replace(path + ".new", path)
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_a_run_that_records_and_prints_nothing_is_killed_by_its_records(tmp_path):
    (tmp_path / "train.py").write_text(RESTARTED)
    words = [sys.executable, str(tmp_path / "train.py"), "{run}"]
    report = verify(words, times=1, seed=3, timeout=200)
    assert report and [check.passed for check in report.checks] == [None, True, True, True]
    killed = report.runs[1]
    assert killed.killed and killed.name == "stopped-0"
