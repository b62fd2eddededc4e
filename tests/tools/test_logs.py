"""Logs of numbers by step: what is read, the first difference, and `fastseed diff` and `show`."""

import json
import math
import sys

import pytest

from fastseed import cli
from fastseed.tools import logs

LINES = [
    {"step": 0, "loss": 0.5, "lr": 0.1},
    {"step": 1, "loss": 0.25, "name": "words do not count", "good": True},
    {"step": 2, "loss": math.nan},
]


def write(path, rows=LINES, **changes):
    """Write rows as JSON lines; ``changes`` are losses by step, ``s1=0.3``."""
    rows = [{**row, "loss": changes.get(f"s{row['step']}", row["loss"])} for row in rows]
    path.write_text("started\n" + "".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def diff(capsys, a, b, *words):
    code = cli.main(["diff", *words, a, b])
    return code, capsys.readouterr()


def test_json_and_csv_hold_the_same(tmp_path):
    (tmp_path / "a.csv").write_text("step,loss,lr\n0,0.5,0.1\n1,0.25,\n2.0,nan,word\n")
    one = logs.read("diff", "A", write(tmp_path / "a.jsonl"))
    other = logs.read("diff", "B", str(tmp_path / "a.csv"))
    assert list(one) == ["0", "1", "2"] and one["0"] == {"loss": 0.5, "lr": 0.1}
    assert one["1"] == {"loss": 0.25}
    assert logs.compare(one, other) == (None, [], 0, 3, [])


@pytest.mark.parametrize(
    ("row", "step"),
    [
        ({"step": 3}, "3"),
        ({"step": 3.0, "epoch": 2}, "2/3"),
        ({"epoch": 2}, "2"),
        ({"global_step": 7, "iter": 9}, "7"),
        ({"loss": 1}, None),
    ],
)
def test_names_of_steps(row, step):
    assert logs.step_of(row) == step


def test_the_first_difference_of_two_logs(tmp_path, capsys):
    a = write(tmp_path / "a.jsonl")
    assert diff(capsys, a, write(tmp_path / "b.jsonl"))[0] == 0
    code, printed = diff(capsys, a, write(tmp_path / "b.jsonl", s1=0.25000000000000006, s2=1.0))
    assert code == 1
    assert printed.out.splitlines() == [
        "the first difference is at step 1",
        "name  A     B",
        "----  ----  -------------------",
        "loss  0.25  0.25000000000000006",
        "2 of the 3 common steps differ",
    ]
    code, printed = diff(capsys, a, write(tmp_path / "b.jsonl", s2=1.0), "--json")
    found = json.loads(printed.out)
    assert (code, found["equal"], found["logs"]["values"]) == (1, False, [["loss", "nan", 1.0]])


def test_the_sign_of_zero_is_a_bit():
    a, b = {"0": {"loss": 0.0}}, {"0": {"loss": -0.0}}
    assert logs.compare(a, b).values == [("loss", 0.0, -0.0)] and logs.compare(a, a).first is None


def test_what_only_one_has_is_a_note(tmp_path, capsys):
    more = [*LINES, {"step": 3, "loss": 1.0, "accuracy": 0.5}, {"step": 4, "loss": 1.0}]
    a, b = write(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", more)
    code, printed = diff(capsys, a, b)
    assert code == 0
    assert printed.out.splitlines() == [
        "0 of the 3 common steps differ",
        "note: B alone has 2 steps, the first is 3",
        "note: B alone has accuracy",
    ]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("b.jsonl", '{"step": 9, "loss": 1}\n', "must have a step and a name in common"),
        ("b.jsonl", '{"step": 0, "other": 1}\n', "must have a step and a name in common"),
        ("b.jsonl", "no numbers\n", "B must be a log of numbers with one of step"),
        ("b.jsonl", '{"step": 0}\n', "B must be a log of numbers with one of step"),
        ("b.jsonl", '{"loss": 1}\n', "B must be a log of numbers with one of step"),
        ("b.jsonl", '{"step": 0, "loss"\n', "b.jsonl' is damaged"),
        ("b.csv", "words\n1\n", "B must be a log of numbers with one of step"),
    ],
)
def test_nothing_compared_is_no_equality(tmp_path, capsys, name, text, says):
    (tmp_path / name).write_text(text)
    code, printed = diff(capsys, write(tmp_path / "a.jsonl"), str(tmp_path / name))
    assert code == 2 and says in printed.err and "Traceback" not in printed.err


def test_a_log_is_shown(tmp_path, capsys):
    assert cli.main(["show", write(tmp_path / "a.jsonl")]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["loss  nan", "3 steps"]


def test_the_environment_comes_first(tmp_path, capsys, monkeypatch):
    """It is the cause where both differ."""
    from fastseed.cli import diff as command

    kinds = {"recording": "", "environment": ""}
    monkeypatch.setattr("fastseed.tools.parts_of", lambda *_: kinds)
    for name in ("_recordings", "_environments"):
        monkeypatch.setattr(command, name, lambda *_, name=name: (print(name) is None, {}))
    assert cli.main(["diff", "a", "b"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[0] == "_"] == [
        "_environments",
        "_recordings",
    ]


@pytest.mark.integrations
def test_logs_of_tensorboard(tmp_path, capsys):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    for run, last in (("a", 0.25), ("b", 0.5)):
        with SummaryWriter(tmp_path / run) as writer:
            for step, loss in enumerate((1.0, 0.75, last)):
                writer.add_scalar("train/loss", loss, step)
    folders = [str(tmp_path / run) for run in "ab"]
    assert logs.read("diff", "A", folders[0])["2"] == {"train/loss": 0.25}
    code, printed = diff(capsys, *folders)
    assert code == 1 and printed.out.startswith("the first difference is at step 2\n")


def test_tensorboard_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.backend.event_processing", None)
    file = tmp_path / "events.out.tfevents.1"
    file.touch()
    assert logs.is_log(tmp_path) and logs.is_log(file) and not logs.is_log(tmp_path / "x.pt")
    with pytest.raises(ImportError, match=r"^fastseed.diff: .* pip install tensorboard"):
        logs.read("diff", "A", str(tmp_path))
