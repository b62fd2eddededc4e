"""The script of docs/quick-start.md, killed and started again, ends as one that never stopped."""

import re
import signal

import pytest
from helpers.paths import ROOT
from helpers.processes import Script

(SCRIPT,) = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "quick-start.md").read_text("utf-8"), re.DOTALL
)
# The process ends while it saves for the nth time: before or after the file gets its name.
KILLED = """
import os, signal, sys
saves, replace = 0, os.replace
last, moment = int(sys.argv.pop(1)), sys.argv.pop(1)

def replace_or_die(source, target):
    global saves
    saves += 1
    if saves == last and moment == "after":
        replace(source, target)
    if saves == last:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

os.replace = replace_or_die
"""
PARAMETERS = """
print([parameter.tolist() for parameter in model.parameters()])
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The script, which dies on request and prints its parameters; and what a whole run prints."""
    folder = tmp_path_factory.mktemp("script")
    program = folder / "train.py"
    program.write_text(KILLED + SCRIPT + PARAMETERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = Script(program, 0, "").wait()
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 4, done.stderr
    return program, done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("save", "moment"), [(1, "after"), (6, "before"), (8, "after")])
def test_script_that_was_killed_ends_like_one_that_was_not(
    program, tmp_path, monkeypatch, save, moment
):
    """An epoch has four saves: after the eighth, a validation and the last epoch follow."""
    monkeypatch.chdir(tmp_path)
    file, whole = program
    assert Script(file, save, moment).wait().returncode == -signal.SIGKILL
    done = Script(file, 0, "").wait()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == whole[-2:]  # the last validation, every parameter
