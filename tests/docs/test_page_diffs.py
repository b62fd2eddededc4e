"""The diffs of pages, applied to scripts that have their lines: they do what the page says."""

import json
import re
import subprocess
import sys

import pytest
from helpers.page_diffs import applied, diffs
from helpers.paths import ROOT, SCRIPTS
from helpers.processes import Script, clean_environment

PARAMETERS = """
import hashlib
values = [parameter.tolist() for parameter in model.parameters()]
with open("parameters", "a") as file:
    file.write(hashlib.sha256(repr(values).encode()).hexdigest() + "\\n")
"""


def losses(text: str) -> list[tuple[int, dict]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_nano_loop_is_killed_and_goes_on_as_the_whole_run(tmp_path):
    (diff,) = [diff for diff in diffs("resume.md") if "micro_step" in diff]
    program = tmp_path / "train.py"
    program.write_text(applied(diff, (SCRIPTS / "nano_loop.py").read_text()))
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
    whole = losses(Script(program, folders[0]).wait().stdout)
    assert len(whole) == 19 + 4
    for last in (7, 12):  # behind a checkpoint; the second start goes on at step 5, the third at 10
        done = Script(program, folders[1], last).wait()
        assert done.returncode == 1
    resumed = losses(Script(program, folders[1]).wait().stdout)
    assert resumed[0]["step"] == 10 and resumed == whole[-len(resumed) :]


@pytest.mark.slow
def test_quick_start_under_torchrun_trains_one_model(tmp_path):
    page = (ROOT / "docs/quick-start.md").read_text("utf-8")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (diff,) = diffs("quick-start.md")
    program = tmp_path / "train.py"
    changed = applied(diff, script)
    program.write_text(changed.replace("del parallel", PARAMETERS + "del parallel"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    both = (tmp_path / "parameters").read_text().split()
    assert len(both) == 2 and both[0] == both[1]


def test_a_diff_whose_lines_are_not_there_is_noticed():
    script = "a\nb  # why\nc\ne\n"
    assert applied("+first\n b\n-c\n+d\n", script) == "first\na\nb  # why\nd\ne\n"
    with pytest.raises(AssertionError, match="no such line"):
        applied(" b\n a\n", "a\nb\n")
