"""`verify` on a training script that records, without a fault and with one."""

import sys

import pytest

from fastseed.tools.verify import verify

SCRIPT = """
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


@pytest.fixture
def words(tmp_path):
    return [sys.executable, str(tmp_path / "train.py"), "{run}"]


@pytest.mark.slow
def test_a_run_that_records_and_prints_nothing_is_killed_by_its_records(tmp_path, words):
    (tmp_path / "train.py").write_text(SCRIPT)
    report = verify(words, times=1, seed=3, timeout=200)
    assert [check.passed for check in report.checks] == [None, True, True, True]
    killed = report.runs[1]
    assert killed.killed and killed.name == "stopped-0"
    (tmp_path / "train.py").write_text(SCRIPT.replace("path):", "path + 'x'):"))  # none is found
    report = verify(words, times=1, seed=3, other_seed=False, timeout=200)
    assert [check.passed for check in report.checks] == [None, True, None]
    assert "1 of 1 began anew" in report.checks[2].message


@pytest.mark.slow
def test_a_checkpoint_without_the_optimizer(tmp_path, words):
    restore = '    optimizer.load_state_dict(state["optimizer"])\n'
    assert restore in SCRIPT
    (tmp_path / "train.py").write_text(SCRIPT.replace(restore, ""))
    report = verify(words, times=1, seed=3, other_seed=False, timeout=200)
    _, stop, resume = report.checks
    assert stop.passed and not resume.passed
    assert "the first difference is at step " in resume.message
    assert "optimizer weight.momentum_buffer: " in resume.message
