"""Reading losses from logs: formats, steps, what is left out, what is refused."""

from __future__ import annotations

import json
import math
import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastseed.tools.verify.losses import printed, read_curve


@pytest.fixture
def write(tmp_path):
    """Write a log and return its path."""

    def write(text, name="log.jsonl"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def bits(values):
    return [struct.pack("<d", value) for value in values]


def named(path, **options) -> list:
    return list(read_curve(path, **options).values)


def refused(*arguments, **options) -> str:
    with pytest.raises(ValueError, match=r"^fastseed\.verify: ") as error:
        read_curve(*arguments, **options)
    return str(error.value)


# ---------------------------------------------------------------- JSON lines


def test_json_lines_among_other_output(write):
    text = lines({"step": 1, "loss": 0.5}, {"step": 1, "lr": 1}, {"step": 2, "loss": None})
    text += "loss {x}\n"
    curve = read_curve(
        write(f"starting\n{text}[1]\n" + lines({"step": 3, "loss": 2}), "stdout.txt")
    )
    assert (curve.values, curve.digits, curve.notes) == ({"1": 0.5, "3": 2.0}, 1, ())


def test_dotted_keys_lead_into_objects(write):
    path = write(lines({"at": {"n": 3}, "a": {"loss": 1}}, {"at.n": 4, "a.loss": 2}, {"a": 4}))
    assert read_curve(path, value="a.loss", step="at.n").values == {"3": 1, "4": 2}


@pytest.mark.parametrize("value", ["abc", "0,5", [1.0], {"a": 1}, 10**400])
def test_a_value_that_is_not_a_number_is_named(write, value):
    path = write("text\n" + lines({"step": 0, "loss": 1}, {"step": 1, "loss": value}))
    assert f"'loss' in {str(path)!r} must be a number, got " in refused(path)


def test_broken_lines_are_noted(write):
    text = '{"step": 1, "loss": 1}\n{"step": 2, "lo{"loss": 2}\n{\'loss\': 3}\n' + "{" * 100_000
    curve = read_curve(write(text + '\n{"step": 4, "loss": 4}\n{"step": 5, "loss": 0.2'))
    assert curve.values == {"1": 1, "4": 4}
    assert curve.notes == ("4 lines are not JSON and were left out",)
    assert named(write('{"step": 1, "loss": 1}\n{"step": 2, "loss": 2}')) == ["1", "2"]


def test_logs_without_losses(write):
    assert read_curve(write("loss: 0.5\n", "stdout")).values == {}
    assert read_curve(write(lines({"lr": 1}))).values == {}


def test_printed_numbers_for_a_picture():
    text = ["epoch 1 loss: 0.5 lr 1", "loss=nan", "loss", "Loss 3", 'the "loss": -1e-3, done']
    found = list(printed(text, "loss").values.values())
    assert found[0] == 0.5 and math.isnan(found[1]) and found[2:] == [-1e-3]


# ---------------------------------------------------------------- steps


def test_steps_have_their_epoch_if_rows_have_one(write):
    rows = [{"epoch": e, "step": s, "loss": e + s / 10} for e in range(2) for s in range(2)]
    assert named(write(lines(*rows))) == ["0/0", "0/1", "1/0", "1/1"]
    assert named(write(lines({"iter": 3, "loss": 1}))) == ["3"]
    assert named(write(lines({"epoch": 2, "loss": 1}))) == ["2"]
    message = "have a step (step) beside each 'loss'; name it by step, got none; its rows have 'lo"
    assert message in refused(write(lines({"loss": 1, "at": 7})))


def test_the_last_value_of_a_repeated_step_counts(write):
    curve = read_curve(write(lines(*({"step": s, "loss": v} for s, v in ((0, 1), (1, 2), (0, 3))))))
    assert list(curve.values.items()) == [("1", 2), ("0", 3)]
    assert curve.notes == ("1 steps were repeated; the last value counts",)


def test_rows_without_the_step(write):
    path = write(lines({"e": 1, "step": 2, "loss": 3}, {"step": 4, "loss": 5}))
    curve = read_curve(path, step="e, step")
    assert curve.values == {"1/2": 3}
    assert curve.notes == ("1 values without a step were left out",)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("3", "3"), ("3.0", "3"), ("-4", "-4"), ("0.25", "0.25"), ('"007"', "007")),
        *(("[0, 12]", "0/12"), ("[0, [1, 2]]", "0/1/2"), ("null", None), ('""', None)),
    ],
)
def test_names_of_steps(write, text, name):
    path = write(f'{{"at": 9, "loss": 1}}\n{{"at": {text}, "loss": 2}}\n')
    assert named(path, step="at") == (["9"] if name is None else ["9", name])


# ---------------------------------------------------------------- any log


@given(st.lists(st.floats(), min_size=1, max_size=30))
@settings(deadline=None, max_examples=50)
def test_every_double_is_read_exactly(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_text(lines(*({"step": i, "loss": value} for i, value in enumerate(values))))
    curve = read_curve(path)
    assert list(curve.values) == list(map(str, range(len(values))))
    for found, value in zip(curve.values.values(), values, strict=True):
        assert math.isnan(found) if math.isnan(value) else bits([found]) == bits([value])


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_a_curve_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    path.write_bytes(data)
    try:
        read_curve(path)
    except ValueError as error:
        assert str(error).startswith("fastseed.verify: ")


# ---------------------------------------------------------------- event files


@pytest.mark.slow
def test_event_files(write, tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    values = [0.1, math.nan, -0.0, 1e-30]
    with SummaryWriter(tmp_path) as writer:
        for step, value in enumerate(values):
            writer.add_scalar("train/loss", value, step * 10)
            writer.add_scalar("lr", 0.5, step)
        writer.add_scalar("train/loss", 7.0, 30)  # as after a restart
    (path,) = tmp_path.iterdir()
    curve = read_curve(path, value="train/loss")
    assert list(curve.values) == ["0", "10", "20", "30"]
    expected = np.array([*values[:3], 7.0], np.float32).astype(np.float64)
    assert np.array(list(curve.values.values())).tobytes() == expected.tobytes()
    assert curve.notes == ("1 steps were repeated; the last value counts",)
    assert read_curve(path).values == {}
    assert read_curve(write(b"", "tfevents.empty")).values == {}


def test_event_files_without_tensorboard(write, monkeypatch):
    name = "tensorboard.backend.event_processing.plugin_event_accumulator"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"fastseed.verify: event files are read with tens"):
        read_curve(write(b"", "events.out.tfevents.1.host"))
