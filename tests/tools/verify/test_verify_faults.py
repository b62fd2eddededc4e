"""`verify` on a small training script without a fault, and with each of these planted."""

from __future__ import annotations

import sys
from pathlib import Path

from fastseed.tools import verify

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "small_training.py"

RACE = '''
class Racing(torch.autograd.Function):
    """Its gradient adds up in the order in which threads come, as atomics do."""

    @staticmethod
    def forward(ctx, weight):
        ctx.save_for_backward(weight)
        return weight.mean()

    @staticmethod
    def backward(ctx, gradient):
        from concurrent.futures import ThreadPoolExecutor

        (weight,) = ctx.saved_tensors
        total = torch.zeros_like(weight)
        parts = [10.0 ** (i % 16 - 12) * (-1) ** i for i in range(256)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda part: total.add_(torch.full_like(weight, part)), parts))
        return total * gradient


def penalty(weight: torch.Tensor) -> torch.Tensor:
    return Racing.apply(weight)
'''

# What is replaced in the script, by fault.
PLANTED = {
    "generator": [
        ("    points = Points()\n", "    points, noise = Points(), np.random.default_rng()\n"),
        (
            "                loss =",
            "                x = x + torch.from_numpy(noise.normal(size=x.shape)).float()\n"
            "                loss =",
        ),
    ],
    "worker": [
        ("        self.y =", "        self.rng = np.random.default_rng(7)\n        self.y ="),
        (
            "        x = self.x[i]\n",
            "        x = self.x[i] + self.rng.normal(size=FEATURES).astype(np.float32)\n",
        ),
        ("batch_size=BATCH)", "batch_size=BATCH, num_workers=2, persistent_workers=True)"),
    ],
    "resume": [
        ("            fastseed.reseed(1, epoch)\n", ""),
        (
            "    with fastseed.Watch",
            "    if state:\n"
            '        torch.set_rng_state(state["torch"])\n'
            "        model(torch.from_numpy(points.x))  # to warm up: its dropout draws\n"
            "    with fastseed.Watch",
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
    "weights": [("    fastseed.reseed(0, 0)\n", "    torch.seed()\n")],
    "checkpoint": [('        optimizer.load_state_dict(state["optimizer"])\n', "")],
    "schedule": [
        (
            "            fastseed.reseed(1, epoch)\n",
            "            fastseed.reseed(1, epoch)\n"
            '            optimizer.param_groups[0]["lr"] = 0.05 * (1 - epoch / args.epochs)\n',
        ),
    ],
}  # fmt: skip


def planted(folder: Path, fault: str | None) -> Path:
    """The script, with a fault in it."""
    text = SCRIPT.read_text()
    for old, new in PLANTED.get(fault, ()):
        assert text.count(old) == 1, (fault, old)
        text = text.replace(old, new)
    script = folder / "train.py"
    script.write_text(text)
    return script


def verified(folder: Path, fault: str | None, **options) -> verify.Report:
    command = [
        sys.executable, str(planted(folder, fault)), "--epochs", "{epochs}",
        "--log", "{run}/log.jsonl", "--checkpoint", "{checkpoint}",
        "[", "--resume", "{resume}", "or", "--seed", "{seed}", "]",
    ]  # fmt: skip
    arguments = {"epochs": 4, "runs": 2, "jobs": 2, "log": "log.jsonl", "timeout": 120, **options}
    return verify.verify(command, directory=folder / "runs", **arguments)


def first(report: verify.Report, kind: str) -> verify.Finding:
    found = [one for one in report.findings if one.kind == kind]
    assert found, (kind, report)
    return found[0]


def test_a_script_without_a_fault_is_bit_identical(tmp_path):
    report = verified(tmp_path, None)
    assert report.passed and report.verdict == "bit-identical", report.says
    assert [check.passed for check in report.checks] == [True] * 5
    assert report.findings == () and report.notes == ()
    whole, half, resumed = (report.of(name)[0].curve for name in ("whole", "half", "resumed"))
    assert half.steps + resumed.steps == whole.steps and len(whole.steps) == 16
    assert report.variance_ratio == 0 and report.paired[0].overall == 0
    assert not (tmp_path / "runs" / "runs" / "probe-0").exists()  # nothing to explain


def test_an_unseeded_generator_is_named_with_its_line(tmp_path):
    report = verified(tmp_path, "generator")
    assert report.verdict == "not reproducible"
    assert not report.checks[0].passed
    assert report.checks[0].differences[0].step == "0"
    found = report.findings[0]
    assert (found.kind, found.certain) == ("generator", True)
    assert "made without a seed" in found.says
    line = (tmp_path / "train.py").read_text().splitlines().index(
        "    points, noise = Points(), np.random.default_rng()"
    )  # fmt: skip
    assert found.where == f"{tmp_path / 'train.py'}:{line + 1}"
    assert first(report, "tensor").says.startswith("whole-0 and whole-1 part first in gradient")
    assert any(one.says.startswith("FS102") for one in report.findings)


def test_a_worker_trap_is_named(tmp_path):
    """Whole runs repeat, but persistent workers go on where those of a resumed run begin anew."""
    report = verified(tmp_path, "worker", control=False)
    assert report.checks[0].passed and not report.checks[2].passed
    assert report.checks[2].differences[0].step == "8"
    found = first(report, "worker")
    assert found.says.startswith("FS203") and ":" in found.where


def test_a_generator_that_was_drawn_from_before_resuming_is_named(tmp_path):
    report = verified(tmp_path, "resume", control=False)
    assert report.checks[0].passed and not report.checks[2].passed
    found = report.findings[0]
    assert found.kind == "resume" and found.where == "resumed-0, step 8"
    assert "generator torch is in another state in the resumed run" in found.says


def test_an_operation_that_adds_as_threads_come_is_named(tmp_path):
    report = verified(tmp_path, "arithmetic", runs=3, control=False)
    assert not report.passed and not report.checks[0].passed
    found = report.findings[0]
    assert (found.kind, found.certain) == ("arithmetic", True)
    assert found.where.startswith("gradient 0.weight, step ")
    assert not [one for one in report.findings if one.kind == "generator"]


def test_weights_that_are_not_seeded_are_named(tmp_path):
    found = verified(tmp_path, "weights", control=False, probe=False).findings[0]
    assert found.kind == "generator" and "begin with other weights" in found.says


def test_what_a_checkpoint_leaves_out_is_named(tmp_path):
    found = verified(tmp_path, "checkpoint", runs=1, control=False, probe=False).findings[0]
    assert found.kind == "resume" and "optimizer 0.weight.momentum_buffer" in found.says


def test_a_schedule_that_ends_with_the_run_is_named(tmp_path):
    report = verified(tmp_path, "schedule", runs=1, control=False, probe=False)
    found = report.findings[0]
    assert found.kind == "resume" and "depends on the number of epochs" in found.says
    assert first(report, "tensor").says.startswith("whole-0 and half-0 part first in optimizer")
