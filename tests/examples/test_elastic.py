"""An elastic job trains on every sample exactly once, however often its workers are killed."""

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from helpers.ranks import group_of_one
from helpers.support import clean_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import train_elastic  # noqa: E402
from demolib.chaos import KILLS, KINDS, schedule  # noqa: E402
from demolib.lineage import Attempt, Verdict, judge, read_attempts, survivors  # noqa: E402

from fastseed.data.step_loop import StepLoop  # noqa: E402

IMAGES, STEPS = 8, 4  # of each of two crafted epochs, with two images a step and one in each part


def part(step: int, number: int, **changes: object) -> dict:
    epoch, position = divmod(2 * (step - 1) + number, IMAGES)
    line = {
        "step": step,
        "epoch": epoch,
        "part": number,
        "samples": [(5 * position + epoch) % IMAGES],
    }
    return {**line, "images": f"{step} {number}", "loss": 1 / step, **changes}


def write(out: Path, number: int, start: int, parent: int, steps: list[int], **changes) -> None:
    """Write the logs of an attempt on two ranks; ``changes`` are those of its first step."""
    folder = out / f"attempt-{number:04d}"
    folder.mkdir(parents=True)
    for rank in range(2):
        lines: list[dict] = [{"world_size": 2, "pid": 1, "start": start, "parent": parent}]
        for step in steps:
            lines.append(part(step, rank, **(changes if step == steps[0] else {})))
        if steps[-1:] == [2 * STEPS]:
            lines.append({"parameters": "aa"})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"rank-{rank}.jsonl").write_text(
            text + '{"step": 9, "par'
        )  # killed while it wrote


def verdict_of(tmp_path: Path, attempts: dict) -> Verdict:
    write(tmp_path / "whole", 1, 0, 0, [*range(1, 9)])
    for number, (start, parent, steps, changes) in attempts.items():
        write(tmp_path / "broken", number, start, parent, [*steps], **changes)
    (reference,) = read_attempts(tmp_path / "whole").values()
    return judge(read_attempts(tmp_path / "broken"), reference, IMAGES)


GOOD = {
    1: (0, 0, range(1, 6), {}),
    2: (0, 0, [], {}),  # killed in its first step
    3: (4, 1, range(5, 8), {}),
    4: (4, 1, range(5, 9), {}),
}


@pytest.mark.smoke
def test_what_survives_is_found(tmp_path):
    verdict = verdict_of(tmp_path, GOOD)
    assert verdict == Verdict(8, 4, 0, 0, 0, 0, 0, True) and verdict.holds()
    attempts = read_attempts(tmp_path / "broken")
    assert [p["step"] for p in survivors(attempts)] == [s for s in range(1, 9) for _ in range(2)]
    assert isinstance(attempts[1], Attempt) and attempts[1].step == 5


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("number", "attempt", "faults"),
    [
        (4, (5, 1, range(7, 9), {}), {"lost", "reordered"}),
        (4, (4, 1, range(5, 8), {}), {"lost", "reordered", "equal_parameters"}),
        (4, (4, 1, range(5, 9), {"samples": [0]}), {"lost", "repeated", "reordered"}),
        (3, (4, 1, range(5, 8), {"images": "other"}), {"different_images"}),  # of a lost step
        (1, (0, 0, range(1, 6), {"loss": 1.0000000000000002}), {"different_losses"}),
    ],
)
def test_faults_are_found(tmp_path, number, attempt, faults):
    verdict = verdict_of(tmp_path, {**GOOD, number: attempt})
    good = Verdict(verdict.steps, verdict.repeated_steps, 0, 0, 0, 0, 0, True)
    pairs = dataclasses.asdict(verdict), dataclasses.asdict(good)
    assert {name for name in pairs[0] if pairs[0][name] != pairs[1][name]} == faults
    assert not verdict.holds()


@pytest.mark.smoke
def test_the_schedule_is_a_function_of_its_seed():
    events = schedule(1, 20)
    assert events == schedule(1, 20) != schedule(2, 20)
    counts = Counter(event.kind for event in events)
    assert sum(counts[kind] for kind in KILLS) == 20 and counts.keys() == KINDS.keys()


class Killed(BaseException):
    """Ends a training, as SIGKILL does."""


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Return a function that trains an epoch on one rank: ``train(folder, steps, without)``."""
    monkeypatch.setattr(train_elastic, "IMAGES", 256)  # eight steps
    generator = torch.Generator().manual_seed(1)
    digits = torch.rand(256, 1, 8, 8, generator=generator), torch.arange(256) % 10
    step = train_elastic.Momentum.step

    def run(folder: str, steps: int | None = None) -> None:
        out = tmp_path / folder
        out.mkdir(exist_ok=True)
        torch.save(digits, out / "digits.pt")
        left = iter(range(steps)) if steps else iter(int, 1)

        def step_or_die(optimizer: object) -> None:
            if next(left, None) is None:
                raise Killed
            step(optimizer)

        monkeypatch.setattr(train_elastic.Momentum, "step", step_or_die)
        with ThreadPoolExecutor(1) as pool:  # at its end the checkpoints are written
            monkeypatch.setattr(train_elastic, "ThreadPoolExecutor", lambda threads: pool)
            train_elastic.train(out, seed=1, epochs=2, save_every=3, step_seconds=0.0)

    with group_of_one():
        yield run


@pytest.mark.costly("three trainings")
@pytest.mark.smoke
@pytest.mark.parametrize(
    ("owner", "faults"),
    [
        (None, set()),
        (train_elastic.Momentum, {"different_losses", "equal_parameters"}),
        (StepLoop, {"repeated", "reordered", "different_losses", "equal_parameters"}),
    ],
    ids=["resumed", "velocities are lost", "the position is lost"],
)
def test_a_killed_training_resumes(train, tmp_path, monkeypatch, owner, faults):
    train("whole")
    for steps in (5, 1, 6):  # killed in steps 6, 5 and 10: resumed from steps 3, 3 and 9
        with pytest.raises(Killed):
            train("broken", steps)
    if owner:
        monkeypatch.setattr(owner, "load_state_dict", lambda self, state: None)
    train("broken")
    (reference,) = read_attempts(tmp_path / "whole").values()
    attempts = read_attempts(tmp_path / "broken")
    assert [attempt.start for attempt in attempts.values()] == [0, 3, 3, 9]
    verdict = judge(attempts, reference, 256)
    assert verdict.holds() == (not faults)
    found = dataclasses.asdict(verdict)
    assert all(found[name] for name in faults - {"equal_parameters"})
    assert found["equal_parameters"] == ("equal_parameters" not in faults)
    if not faults:
        assert verdict.repeated_steps == 3 + 2 + 1  # and the steps that were not finished


def run_chaos(out: Path, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "chaos_elastic.py", "--out", out, *arguments],
        capture_output=True,
        text=True,
        timeout=3500,
        env=clean_environment(OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict = json.loads((out / "results.json").read_text())
    return found


@pytest.mark.timeout(3600)  # it takes a minute or two on two quiet cores
def test_kills_lose_and_repeat_no_sample(tmp_path):
    found = run_chaos(tmp_path, "--kills", "3")
    assert found["kills"] == 3 and found["starts"] > 3 and found["repeated_steps"] > 0
    assert found["lost"] == found["repeated"] == found["reordered"] == 0
    assert found["different_images"] == found["different_losses"] == 0
    assert found["equal_parameters"]


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_ray_train_replaces_a_killed_worker(tmp_path):
    pytest.importorskip("ray.train", reason="needs the extra fastseed[ray]")
    found = run_chaos(tmp_path, "--ray", "--kills", "1", "--epochs", "4")
    assert found["kills"] == 1 and found["starts"] >= 2
    assert found["lost"] == found["repeated"] == found["reordered"] == 0
    assert found["different_losses"] == 0 and found["equal_parameters"]
