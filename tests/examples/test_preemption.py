"""The job of docs/preemption.md: SIGTERM on two ranks, then started again on two and on one."""

import re
import shutil

import pytest
from helpers.paths import ROOT
from helpers.processes import Script, free_port

pytestmark = pytest.mark.slow
PROGRAM = re.search(r"```python\n(.*?)```", (ROOT / "docs/preemption.md").read_text(), re.DOTALL)[1]
REQUEUE, TOLD = 75, "    told = stopping.clone()"


SIGNAL = """
    if (epoch, step, dist.get_rank()) == (0, 9, 1):  # one rank is enough
        os.kill(os.getpid(), signal.SIGTERM)
"""


def run(folder, ranks, is_preempted=False):
    """Run the job in a folder; the exit codes, and the losses of each step on the ranks."""
    script, port = folder / "job.py", str(free_port())
    (head, tail), told = PROGRAM.split(TOLD), SIGNAL if is_preempted else ""
    script.write_text(f"import os\nos.chdir({str(folder)!r})\n{head}{told}{TOLD}{tail}")
    variables = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [Script(script, RANK=str(rank), **variables) for rank in range(ranks)]
    ended = [one.wait(240) for one in started]
    lines = [re.findall(r"^(\d+) (\d+) (\S+)$", one.stdout, re.MULTILINE) for one in ended]
    losses = {
        (int(epoch), int(step)): [float(each[2]) for each in same]
        for same in zip(*lines, strict=True)
        for epoch, step, _ in same[:1]
    }
    return {one.returncode for one in ended}, losses


def test_a_preempted_job_continues_on_as_many_ranks_and_on_fewer(tmp_path):
    for name in ("whole", "two"):
        (tmp_path / name).mkdir()
    codes, whole = run(tmp_path / "whole", 2)
    assert codes == {0} and len(whole) == 60
    codes, first = run(tmp_path / "two", 2, is_preempted=True)
    assert codes == {REQUEUE} and len(first) == 10
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    codes, rest = run(tmp_path / "two", 2)
    assert codes == {0} and first | rest == whole and not first.keys() & rest.keys()
    codes, alone = run(tmp_path / "one", 1)
    assert codes == {0} and alone.keys() == rest.keys()
    for at, (loss,) in alone.items():
        assert loss == pytest.approx(sum(whole[at]) / 2, rel=1e-4), at
