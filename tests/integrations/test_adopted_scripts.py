"""Scripts as people have them, adopted in a few lines: killed at three places, the same run."""

import random
import re
import signal

import pytest
from helpers.paths import ROOT, SCRIPTS
from helpers.processes import Script

SAME_SUMS = {"MKL_CBWR": "AUTO", "OMP_NUM_THREADS": "1"}  # else the last bits of sums may differ
NEEDS = {
    "language": (),
    "digits": (),
    "images": (),
    "classification": (),
    "diffusion": ("accelerate",),
    "lora": ("transformers", "peft"),
    "ppo": ("gymnasium",),
}
"""The packages that each of the scripts needs."""
TABLE = re.compile(r"^\| `(\w+)\.py` \|.*\| (\d+) \|$", re.MULTILINE)
KILLER = """
import os, signal, runpy, sys
from torch.optim.optimizer import register_optimizer_step_pre_hook
left = int(sys.argv.pop(1))
def count(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
register_optimizer_step_pre_hook(count)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def lines_of(text):
    return re.findall(r"^(?:\d+ \d+|end) .*$", text, re.MULTILINE)


@pytest.mark.parametrize("name", NEEDS)
def test_a_script_that_is_killed_three_times_is_the_same_run(name, tmp_path):
    for package in NEEDS[name]:
        pytest.importorskip(package)
    killer, script = tmp_path / "killer.py", SCRIPTS / "adopted" / f"{name}.py"
    killer.write_text(KILLER)
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
    whole = Script(killer, 0, script, tmp_path / "whole", 0, **SAME_SUMS).wait(240)
    assert whole.returncode == 0, whole.stderr
    expected, seen = lines_of(whole.stdout), {}
    places = random.Random(name)
    kills = [places.randrange(3, 8) for _ in range(3)]
    for workers, kill in ((0, kills[0]), (2, kills[1]), (1, kills[2]), (2, 0)):
        folder = tmp_path / "killed"
        ended = Script(killer, kill, script, folder, workers, **SAME_SUMS).wait(240)
        assert ended.returncode == (-signal.SIGKILL if kill else 0), ended.stderr
        lines = lines_of(ended.stdout)
        assert not (seen and lines) or lines[0] != expected[0]  # it was resumed
        seen |= {tuple(line.split()[:2]): line for line in lines}
    assert [*seen.values()] == expected


def test_the_table_has_the_lines_that_changed():
    table = dict(TABLE.findall((ROOT / "docs/migration/index.md").read_text()))
    assert {*table} == {*NEEDS}
    for name, count in table.items():
        text = (SCRIPTS / "adopted" / f"{name}.py").read_text()
        assert len(re.findall(r"  # \+", text)) == int(count) <= 10
