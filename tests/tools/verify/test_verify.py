"""`fastseed verify`: the four experiments, on a script that starts in 20 ms, and its report."""

import json
import os
import re
import sys
from importlib.util import find_spec

import pytest

from fastseed.cli import exit_codes, main
from fastseed.tools import environment
from fastseed.tools.verify import report as reports
from fastseed.tools.verify import runs, verify

SCRIPT = """\
import json, os, sys, time
run, options = sys.argv[1], sys.argv[2:]
name = os.path.basename(os.environ["FASTSEED_RUN_DIR"])
path, begin, last = os.path.join(run, "checkpoint"), 0, 8
value = int(os.environ.get("FASTSEED_MASTER_SEED", 5))
#BEGIN
if os.path.exists(path):
    begin, value = json.load(open(path))
    print("resuming at", begin)
for step in range(begin, last):
    value = (value * 48271 + 11) % 2147483647
    print(#ROW)
    with open(path + ".new", "w") as file:
        json.dump([step + 1, value], file)
    os.replace(path + ".new", path)
    time.sleep(0.03 * name.startswith("stopped"))
#END
"""
JSON = 'json.dumps({"step": step, "loss": value / 7})'
TEXT = '"step", step, "loss", value / 7'


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("FASTSEED_MASTER_SEED", "PYTHONHASHSEED"):
        monkeypatch.delenv(name, raising=False)


def command(begin: str = "", end: str = "", row: str = JSON, run: str = "{run}") -> list[str]:
    text = SCRIPT.replace("#BEGIN", begin).replace("#END", end).replace("#ROW", row)
    with open("train.py", "w") as file:
        file.write(text)
    return [sys.executable, "-S", os.path.abspath("train.py"), run]


NAMES = ["whole-0", "whole-1",
         *(f"{name}-{k}" for k in range(3) for name in ("stopped", "resumed")),
         "other-0", "other-1"]  # fmt: skip


def passed(report) -> dict[str, bool | None]:
    return {check.name: check.passed for check in report.checks}


@pytest.mark.parametrize("row", [JSON, TEXT])
def test_a_program_that_is_killed_and_started_again(row):
    seen = []
    report = verify(command(row=row), times=2, progress=seen.append)
    assert report and set(passed(report).values()) == {True}, report.checks
    assert [run.name for run in seen if isinstance(run, runs.Run)] == NAMES
    stopped, resumed = report.runs[2:5], report.runs[5:8]
    for one, lines in zip(stopped, (4, 2, 6), strict=True):
        assert one.killed and lines <= len(one.lines) < 8
    assert "runs were killed at 1/2, 1/4, 3/4" in report.notes
    assert all(one.lines[0].startswith("resuming at ") for one in resumed)
    assert [one.place for one in resumed] == [one.place for one in stopped]


@pytest.mark.parametrize(
    ("begin", "end", "row", "wrong", "message"),
    [
        ("value += os.getpid()", "", JSON, "repeat", "at step 0: "),
        ("value += os.getpid()", "", TEXT, "repeat", "line 1 of whole-0 and whole-1: 'step 0"),
        ("", "name == 'whole-1' and print(name)", TEXT, "repeat", "the output has ended and 'who"),
        ("value += name.startswith('stopped')", "", JSON, "stop", "at step 0: "),
        ("value += name.startswith('stopped')", "", TEXT, "stop", "line 1 of stopped-0 and who"),
        ("begin -= name.startswith('resumed')", "", TEXT, "", ""),
    ],
)
def test_differences_are_named(begin, end, row, wrong, message):
    report = verify(command(begin, end, row), times=2, other_seed=False)
    failed = [check for check in report.checks if check.passed is False]
    if not wrong:
        assert report
        return
    assert failed[0].name == wrong and message in failed[0].message
    assert report.verdict == "failed"


@pytest.mark.parametrize("row", [JSON, TEXT])
def test_a_program_that_does_not_restore_its_state(row):
    begin = "json.load = lambda file, load=json.load: [load(file)[0], 5]"
    report = verify(command(begin, row=row), times=1)
    assert passed(report) == {"repeat": None, "stop": True, "resume": False, "seed": True}
    said = "line 7 of whole-0 is not in stopped-0 with resumed-0"
    assert (said[:5] if row == TEXT else "first difference between stopped-0 with resumed-0") in (
        report.checks[2].message
    )


def test_a_seed_that_has_no_effect_is_inconclusive(capsys):
    words = command("value = 42")
    assert main(["verify", "--times", "1", "--no-kill", *words]) == exit_codes.FOUND
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "INCONCLUSIVE"
    assert any("call init() without a number, or put {seed} into the command" in x for x in lines)
    assert main(["verify", "--no-kill", "--no-other-seed", *words]) == exit_codes.OK
    words = command("value = int(options[0])")
    assert verify([*words, "{seed}"], kill=False)


def test_a_program_without_a_seed_is_told_to_take_one():
    words = command("value = int.from_bytes(os.urandom(4))")
    said = "runs got no seed: pass --seed N if the program calls init() without a number"
    reports = [verify(words, kill=False, seed=seed) for seed in (None, 3)]
    assert [said in report.notes for report in reports] == [True, False]
    assert not any(passed(report)["repeat"] for report in reports)


@pytest.mark.parametrize(("text", "passes"), [("", False), ("value = seed", True)])
def test_a_program_that_only_prints_its_seed_is_inconclusive(text, passes):
    begin = f"seed, value = int(options[0]), 42\n{text}\nprint(f'seed={{seed}}, run-{{seed}}:')"
    report = verify([*command(begin, row=TEXT), "{seed}"], kill=False)
    assert passed(report) == {"repeat": True, "seed": passes}
    assert report.verdict == ("passed" if passes else "inconclusive")


@pytest.mark.parametrize(
    ("times", "begin", "row", "options"),
    [
        (3, "", JSON, {}),
        (1, "", TEXT, {}),
        (1, "", "'step', step, value", {}),
        (1, "print('new' if not os.path.exists(path) else 'found')", TEXT, {}),
        (1, "log = open(run + '/log', 'a', 1)", f"{JSON}, file=log); print(step", {"log": "log"}),
        (1, "log = open(run + '/log', 'w', 1)", f"{JSON}, file=log); print(step", {"log": "log"}),
    ],
)
def test_a_program_that_begins_anew_is_inconclusive(times, begin, row, options):
    options = {**options, "times": times, "other_seed": False}
    right = verify(command(begin, row=row), **options)
    wrong = verify(command(begin + "\npath += name", row=row), **options)
    repeats = True if times > 1 else None
    assert passed(right) == {"repeat": repeats, "stop": True, "resume": True}
    assert passed(wrong) == {"repeat": repeats, "stop": True, "resume": None}
    assert wrong.verdict == "inconclusive"
    said = f"{times} of {times} began anew, so that nothing was resumed: "
    assert wrong.checks[-1].message.startswith(said)


def test_one_kill_before_the_first_checkpoint_is_a_note():
    """A run that has written none can only begin anew; the others have resumed."""
    begin = "path += 'x' * (name == 'stopped-1')"  # that run's checkpoint is not found
    report = verify(command(begin), other_seed=False)
    assert passed(report) == {"repeat": True, "stop": True, "resume": True}
    assert "1 of 3 runs began anew after the kill, as without a checkpoint" in report.notes


def test_what_begins_is_said_and_standard_error_is_not_compared():
    said = []
    words = command("print(name, file=sys.stderr)")
    report = verify(words, times=1, other_seed=False, progress=said.append)
    said = [getattr(one, "seconds", one) for one in said]  # of runs that have ended
    assert said[0] == "whole-0" and re.fullmatch(r"2 more runs, about \d+ s", said[2])
    assert said[3::2] == ["stopped-0", "resumed-0"] and min(said[1], *said[4::2]) > 0
    assert "runs were killed at 1/2" in report.notes
    assert "standard error, as whole-0 wrote it, is not compared" in report.notes


@pytest.mark.costly("programs")
def test_files_in_the_working_folder_are_named():
    os.makedirs("below/out")
    for run, other in ((".", False), ("below", True)):
        report = verify(command(run=run), times=2, other_seed=other, kill=False, out="below/out/x")
        where = os.path.join(*filter(None, (run.strip("."), "checkpoint")))
        assert not report and f"they wrote {where}: a run may continue" in report.notes[-1]
        os.rename("below/out/x", f"below/out/{other}")
        os.remove(where)
    words = command("path = 'below/last'\nif name != 'whole-0': begin, value = 0, 5", run="x")
    report = verify(words, kill=False, other_seed=False)
    assert "they wrote below/last: a run may" in report.notes[-1]


def test_runs_that_end_before_they_are_killed_are_left_out(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(runs, "kill_points", lambda run: {"1/2": lambda folder: False})
        report = verify(command(), other_seed=False)
    assert report.verdict == "inconclusive" and passed(report)["stop"] is None
    assert "run stopped-1 ended before it was killed, so it is left out" in report.notes
    report = verify([sys.executable, "-S", "-c", "print(1)"], times=2, other_seed=False)
    assert report.verdict == "inconclusive" and report.notes == (
        "no run was killed: the whole run printed and recorded too little",
    )
    with pytest.raises(ValueError, match=r"got no output \(standard error, as of logging"):
        verify([sys.executable, "-S", "-c", "pass"])


@pytest.mark.costly("programs")
def test_no_shell_and_the_variables_of_each_experiment():
    hostile = ["; touch pwned", "$(touch pwned)\n`touch pwned` '\" \x1b[31m", "{seed}x"]
    begin = (
        "names = 'FASTSEED_MASTER_SEED', 'PYTHONHASHSEED', 'PYTHONUNBUFFERED'\n"
        "with open(os.path.join(os.environ['FASTSEED_RUN_DIR'], 'given'), 'w') as file:\n"
        "    json.dump([*map(os.environ.get, names), *options], file)\n"
    )
    noted = ("the runs had PYTHONHASHSEED set, as `fastseed run` sets it",)
    for out, options, hashing in (
        ("own", hostile, False), ("run", hostile[:2], True), ("both", hostile, True),
    ):  # fmt: skip
        report = verify(
            [*command(begin), *options], seed=5, kill=False, out=out, deterministic=out == "both"
        )
        assert report and report.notes == noted * hashing
        for name, seed in (("whole-0", "5"), ("other-0", "6")):
            with open(f"{out}/{name}/given") as file:
                expected = [seed, seed if hashing else None, "1", *options[:2], f"{seed}x"]
                assert json.load(file) == expected[: 3 + len(options)]
    assert not os.path.exists("pwned")


def test_logs_below_the_folder_of_a_run():
    begin = "sys.stdout = open(os.path.join(run, 'log.jsonl'), 'a', buffering=1)"
    report = verify(command(begin), log="*.jsonl", kill=False)
    assert report and list(report.runs[0].losses.values) == [str(i) for i in range(8)]
    for options in ({"log": "x"}, {"log": "*.jsonl", "value": "other"}):
        with pytest.raises(ValueError, match=r"log must be one file below \{run\} with JSON lines"):
            verify(command(begin), times=1, kill=False, **options)
    with pytest.raises(ValueError, match=r"log must be a path below \{run\}"):
        verify(command(), log="../x")


# ---------------------------------------------------------------- the report


def test_the_command_and_its_files(capsys, monkeypatch):
    monkeypatch.setattr(environment, "capture", os.mkdir)
    words = command(row=TEXT)
    assert main(["verify", "--out", "out", "--", *words]) == exit_codes.OK
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[-1] == "PASSED" and "wrote out" in lines
    assert [line.split()[0] for line in lines[2:6]] == ["whole", "stopped", "resumed", "other"]
    assert [line.split()[0] for line in shown.err.splitlines()] == [*NAMES]
    if find_spec("matplotlib"):
        with open("out/losses.png", "rb") as file:
            assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    with open("out/report.json") as file:
        document = json.load(file)
    assert document["passed"] and len(document["runs"][0]["losses"]) == 8
    assert main(["verify", "--times", "1", "--out", "out", *words]) == exit_codes.USAGE
    assert "out must be a new or empty folder" in capsys.readouterr().err


def test_json_is_strict_and_nothing_else_is_printed(capsys):
    words = command(row="json.dumps({'step': step, 'loss': float('nan')}), '\\x1b[31m'")
    assert main(["verify", "--json", "--times", "1", "--no-kill", *words]) == exit_codes.FOUND
    shown = capsys.readouterr()

    def refuse(constant):
        raise ValueError(constant)

    assert not json.loads(shown.out, parse_constant=refuse)["passed"] and shown.err == ""
    assert "\x1b" not in shown.out


def test_without_matplotlib(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(environment, "capture", os.mkdir)
    words = command()
    options = ["--no-kill", "--no-other-seed", "--out", "out"]
    assert main(["verify", *options, *words]) == exit_codes.OK
    assert "pip install matplotlib" in capsys.readouterr().out
    nothing = reports.Report((), ())
    assert nothing.document()["runs"] == [] and nothing.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--times", "0", "x"], "times must be in [1, 10000], got 0"),
        (["--timeout", "0", "x"], "timeout must be in"),
        (["--seed", "-1", "x"], "seed must be in"),
        (
            ["--ranks", "1,x", "x"],
            "argument --ranks: must be integers, separated by commas, got '1,",
        ),
        ([], "a program is missing"),
        (["--"], "a program is missing"),
        (["--unknown", "x"], "unrecognized arguments: --unknown"),
    ],
)
def test_wrong_usage(capsys, given, message):
    assert main(["verify", "--json", *given]) == exit_codes.USAGE
    shown = capsys.readouterr()
    assert message in shown.err and "Traceback" not in shown.err
    assert message in json.loads(shown.out)["error"]["message"]
