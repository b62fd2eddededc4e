"""What runs leave for the next one, and what they wrote of themselves: checkpoints and logs."""

from __future__ import annotations

import json

import pytest
from helpers.tiny_training import refused, tiny

__all__ = ["tiny"]

ALL = ["whole-0", "half-0", "resumed-0", "unseeded-0"]


# ---------------------------------------------------------------- checkpoints

SAVES = """\
saved = {}
def load(path):
    with open(path) as file: return json.load(file)
def save(path, value):
    with open(path, "w") as file: json.dump(value, file)
value = int(options.get("--seed", int.from_bytes(os.urandom(4), "big")))
"""
LOOP = """\
for step in range(begin, int(epochs)):
    value = (value * 48271 + 11) % 2147483647
    print(json.dumps({"step": step, "loss": value / 7}))
"""
CHECKPOINTS = {
    "folder": (
        "load(options['--resume'] + '/deep/state')",
        "os.makedirs(checkpoint + '/deep', exist_ok=True);"
        "save(checkpoint + '/deep/state', [int(epochs), value])",
    ),
    "several": (
        "[load(options['--resume'] + '.a'), load(options['--resume'] + '-b/x')]",
        "save(checkpoint + '.a', int(epochs)); os.makedirs(checkpoint + '-b', exist_ok=True);"
        "save(checkpoint + '-b/x', value)",
    ),
    "link": (
        "load(options['--resume'] + '-last')",
        "save(checkpoint + '-0', [int(epochs), value]);"
        "os.path.lexists(checkpoint + '-last') or "
        "os.symlink('checkpoint-0', checkpoint + '-last')",
    ),
    "link inside": (
        "load(options['--resume'] + '/last')",
        "os.makedirs(checkpoint, exist_ok=True); save(checkpoint + '/0', [int(epochs), value]);"
        "os.path.lexists(checkpoint + '/last') or "
        "os.symlink(checkpoint + '/0', checkpoint + '/last');"
        "os.path.lexists(checkpoint + '/no') or os.symlink('/nowhere', checkpoint + '/no');"
        "os.path.lexists(checkpoint + '-no') or os.symlink('/nowhere', checkpoint + '-no')",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoints_are_copied_whatever_they_are(tiny, kind):
    loads, saves = CHECKPOINTS[kind]
    ours = f"begin, value = {loads} if '--resume' in options else (0, value)\n{LOOP}{saves}\n"
    tiny.write(f"{SAVES}{ours}sys.exit()\n")
    assert tiny.verify().passed
    for path in tiny.run("half-0").rglob("*"):
        if path.is_file() and path.name in ("state", "0", "checkpoint-0", "checkpoint.a"):
            found = json.loads(path.read_text())
            assert found == 2 or found[0] == 2  # the half run's own, not what the resumed wrote


def test_a_checkpoint_that_is_not_written(tiny):
    tiny.write(end="os.remove(checkpoint)")
    folder = tiny.run("half-0")
    assert refused(tiny, RuntimeError) == (
        "fastseed.tools.verify: run half-0 must write a checkpoint to {checkpoint}, but there is nothing "
        f"in {folder} whose name begins with 'checkpoint'"
    )


def test_a_checkpoint_that_cannot_be_copied(tiny):
    tiny.write(end="os.mkfifo(checkpoint + '.fifo')")
    found = refused(tiny, RuntimeError)
    assert found.startswith(
        "fastseed.tools.verify: the checkpoint of run half-0 must be files and folders that can be "
        "copied, got "
    )
    assert "checkpoint.fifo" in found


# ---------------------------------------------------------------- logs

LOGS = (
    "log = open(os.path.join(run, {!r}), 'w'); print = lambda text, flush: log.write(text + '\\n')"
)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("log.jsonl", "log.jsonl"),
        ("log.jsonl", "l*.jsonl"),
        ("log[1] *.jsonl", "log[1] *.jsonl"),
        ("\x1b[31mlog\n.jsonl", "*log*"),
    ],
)
def test_logs_by_name_and_pattern(tiny, written, asked):
    tiny.write(LOGS.format(written))
    assert tiny.verify(log=asked).passed


def test_a_log_deep_below(tiny):
    tiny.write("os.makedirs(run + '/a/version_0')\n" + LOGS.format("a/version_0/metrics.jsonl"))
    assert tiny.verify(log="a/**/metrics.jsonl").passed


def test_a_log_that_is_not_there_or_there_twice(tiny):
    tiny.write("open(run + '/a.jsonl', 'w'); open(run + '/b.jsonl', 'w')")
    must = "fastseed.tools.verify: log must be one path below {run}, got "
    there = "there are a.jsonl, b.jsonl, checkpoint, run.json, stderr.txt, stdout.txt"
    assert refused(tiny, ValueError, log="log.jsonl") == (
        f"{must}'log.jsonl', of which whole-0 has 0: {there}"
    )
    assert refused(tiny, ValueError, log="*.jsonl") == (
        f"{must}'*.jsonl', of which whole-0 has 2: {there}"
    )
    # What is read may change, and the run that took its time is not made again.
    assert tiny.verify().passed and tiny.ran() == ALL


@pytest.mark.parametrize("inside", [False, True])
def test_a_log_that_is_a_link(tiny, inside):
    """To one file of all runs: each of them would hold what the last one wrote."""
    where = "run + '/real'" if inside else "here + '/shared'"
    tiny.write(
        f"os.symlink({where}, run + '/log.jsonl')\n{LOGS.format('log.jsonl')}"
    )  # fmt: skip
    if inside:
        assert tiny.verify(log="log.jsonl").passed
        return
    assert refused(tiny, ValueError, log="log.jsonl") == (
        "fastseed.tools.verify: log must be a path below {run}, got 'log.jsonl', which leads to "
        f"{str(tiny.folder / 'shared')!r} in whole-0"
    )


def test_a_log_that_is_neither_file_nor_folder(tiny):
    tiny.write("os.mkfifo(run + '/log.jsonl')")
    assert refused(tiny, ValueError, log="log.jsonl") == (
        "fastseed.tools.verify: log must be a file or a folder, got 'log.jsonl', which is neither in "
        "whole-0"
    )


def test_output_that_was_removed(tiny):
    tiny.write("os.remove(run + '/stdout.txt')")
    assert "log must be one path below {run}, got 'stdout.txt', of which whole-0 has 0" in refused(
        tiny, ValueError
    )


def test_a_log_without_losses_names_the_run_at_once(tiny):
    tiny.write('print(\'{"step": 0, "accuracy": 1}\'); sys.exit()')
    found = refused(tiny, ValueError)
    assert found.startswith("fastseed.tools.verify: ") and str(tiny.run("whole-0")) in found
    assert tiny.ran() == ["whole-0"]


def test_steps_that_begin_anew_in_each_epoch(tiny):
    """One epoch alone does not show it: of two epochs in all the half run has one."""
    tiny.write(
        "real = print\n"
        "def print(text, flush):\n"
        "    epoch = json.loads(text)['step']\n"
        "    for step in range(3):\n"
        "        real(json.dumps({'epoch': epoch, 'step': step, 'loss': value + step / 7}))\n"
    )
    report = tiny.verify(epochs=2)
    assert report.passed, report.says
    steps = {run.experiment: run.curve.steps for run in report.runs}
    assert steps["half"] == ("0/0", "0/1", "0/2") and steps["resumed"] == ("1/0", "1/1", "1/2")
    assert steps["whole"] == steps["half"] + steps["resumed"]


def test_steps_without_names_go_on_where_the_half_run_ended(tiny):
    tiny.write("real = print\ndef print(text, flush): real('loss:', json.loads(text)['loss'])\n")
    report = tiny.verify(epochs=5, pattern=r"loss: (\S+)")
    assert report.passed, report.says
    assert report.of("half")[0].curve.steps == ("0", "1")
    assert report.of("resumed")[0].curve.steps == ("2", "3", "4")


def test_a_resumed_run_that_begins_anew_differs(tiny):
    tiny.write("options.pop('--resume', 0); name == 'unseeded-0' or options.update({'--seed': 1})")
    report = tiny.verify()
    assert report.passed  # it wrote the first steps again, equal to the last bit
    tiny.directory = tiny.folder / "again"
    tiny.write("'--resume' in options and options.update({'--seed': 9, '--resume': '/dev/null'})\n"
               "json.load = lambda file: [0, 5]")  # fmt: skip
    report = tiny.verify()
    assert not report.passed and not report.checks[2].passed
    assert report.checks[2].differences[0].step == "0"


def test_a_large_log(tiny):
    tiny.write("for _ in range(50): sys.stdout.write(('x' * 9999 + '\\n') * 10)")
    assert tiny.verify(control=False).passed
    assert (tiny.run("whole-0") / "stdout.txt").stat().st_size > 5e6
