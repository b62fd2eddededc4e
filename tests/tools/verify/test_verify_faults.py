"""`verify` on a small training script, without a fault and with planted faults.

Each run imports torch, so that most of these tests are slow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fastseed.tools import verify
from fastseed.tools.verify.result import Report

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
    "schedule": [
        (
            "            fastseed.reseed(1, epoch)\n",
            "            fastseed.reseed(1, epoch)\n"
            '            optimizer.param_groups[0]["lr"] = 0.05 * (1 - epoch / args.epochs)\n',
        ),
    ],
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
    command = [
        sys.executable, str(write_script(folder, fault)), "--epochs", "{epochs}",
        "--log", "{run}/log.jsonl", "--checkpoint", "{checkpoint}",
        "[", "--resume", "{resume}", "or", "--seed", "{seed}", "]",
    ]  # fmt: skip
    given = {"epochs": 4, "runs": 2, "jobs": 2, "log": "log.jsonl", "timeout": 200, **options}
    return verify.verify(verify.Options(command=command, directory=folder / "runs", **given))


@pytest.mark.slow
def test_a_checkpoint_without_the_optimizer(tmp_path):
    report = verified(tmp_path, "checkpoint", runs=1, baseline=False)
    assert report.verdict == "not reproducible"
    assert report.checks[1].passed and not report.checks[2].passed
    assert " at step 9: " in report.checks[2].message  # the first update with another momentum
    cause = "resumed-0: the checkpoint does not restore optimizer 0.weight.momentum_buffer"
    assert report.causes[0].startswith(cause)
    assert not report.checks[4].passed and "resumed-0" in report.checks[4].message


@pytest.mark.slow
def test_no_fault(tmp_path):
    report = verified(tmp_path, None)
    assert report.passed and report.verdict == "bit-identical", report.summary
    assert [check.passed for check in report.checks] == [True] * 5
    assert report.causes == () and report.notes == ()
    curves = [report.of(name)[0].curve for name in ("uninterrupted", "truncated", "resumed")]
    steps = [list(curve.values) for curve in curves]
    assert steps[1] + steps[2] == steps[0] and len(steps[0]) == 16


@pytest.mark.slow
def test_a_generator_used_before_resuming(tmp_path):
    report = verified(tmp_path, "resume", runs=1, baseline=False)
    assert report.checks[1].passed and not report.checks[2].passed
    cause = "resumed-0: generators in other states at step 8 (torch): used before training resumed"
    assert report.causes[0].startswith(cause)


@pytest.mark.slow
def test_a_sum_in_the_order_of_threads(tmp_path):
    report = verified(tmp_path, "arithmetic", baseline=False)
    assert not report.checks[0].passed
    assert report.causes[0].startswith("uninterrupted-1: no recorded generator differed, so this")


@pytest.mark.slow
def test_a_schedule_that_depends_on_the_number_of_epochs(tmp_path):
    report = verified(tmp_path, "schedule", runs=1, baseline=False)
    assert "depends on the number of epochs" in report.causes[0]
    message = "differ: uninterrupted-0 and truncated-0: the first difference is at step"
    assert message in report.checks[4].message
