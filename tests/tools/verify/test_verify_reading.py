"""Reading losses from logs: formats, steps, what is left out, what is refused."""

from __future__ import annotations

import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastseed.tools.verify.logs import read_curve


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


def dlll(step, data, kind="LOG"):
    """Return a line as the JSONStreamBackend of NVIDIA/dllogger writes it."""
    row = {
        "timestamp": "1570716921.842053",
        "elapsedtime": "5.7",
        "type": kind,
        "step": step,
        "data": data,
    }
    return f"DLLL {json.dumps(row)}\n"


def bits(values):
    return [struct.pack("<d", value) for value in values]


def named(path, **options) -> list:
    return read_curve(path, **options).steps.tolist()


def refused(*arguments, **options) -> str:
    with pytest.raises(ValueError, match=r"^fastseed\.tools\.verify: ") as error:
        read_curve(*arguments, **options)
    return str(error.value)


# ---------------------------------------------------------------- JSON lines


def test_json_lines_among_other_output(write):
    text = lines({"step": 1, "loss": 0.5}, {"step": 1, "lr": 1}, {"step": 2, "loss": None})
    text += "loss {x}\n"
    curve = read_curve(
        write(f"starting\n{text}[1]\n" + lines({"step": 3, "loss": 2}), "stdout.txt")
    )
    assert curve.steps.tolist() == [1, 3] and curve.values.tolist() == [0.5, 2]
    assert curve.values.dtype == np.float64
    assert (curve.labelled, curve.digits, curve.notes) == (True, 1, ())


def test_dotted_keys_lead_into_objects(write):
    path = write(lines({"at": {"n": 3}, "a": {"loss": 1}}, {"at.n": 4, "a.loss": 2}, {"a": 4}))
    curve = read_curve(path, value="a.loss", step="at.n")
    assert curve.steps.tolist() == [3, 4] and curve.values.tolist() == [1, 2]


def test_numbers_that_are_not_finite(write):
    path = write('{"loss": NaN}\n{"loss": -Infinity}\n{"loss": 1e999}\n{"loss": -0.0}\n')
    values = read_curve(path).values
    assert math.isnan(values[0]) and bits(values[1:]) == bits([-math.inf, math.inf, -0.0])


@pytest.mark.parametrize("value", ["abc", "0,5", [1.0], {"a": 1}, 10**400])
def test_a_value_that_is_not_a_number_is_named(write, value):
    path = write("text\n" + lines({"loss": 1}, {"loss": value}))
    assert f"'loss' in {str(path)!r} must be a number, got " in refused(path)


def test_broken_lines_are_noted(write):
    text = '{"loss": 1}\n{"step": 2, "lo{"loss": 2}\n{\'loss\': 3}\n{"loss": 4}\n' + "{" * 100_000
    curve = read_curve(write(text + '\n{"loss": 0.2'))
    assert curve.values.tolist() == [1, 4]
    assert curve.notes == ("4 lines are not JSON and were left out",)
    assert read_curve(write('{"loss": 1}\n{"loss": 2}')).values.tolist() == [1, 2]


def test_lines_that_are_valid_only_together_are_broken(write):
    """Lines are decoded in groups, which must not hide that a line is not JSON."""
    curve = read_curve(write('{"loss": 1}\n{"a": [{"loss": 2}\n{"loss": 3}]}\n'))
    assert curve.values.tolist() == [1]
    assert curve.notes == ("2 lines are not JSON and were left out",)


# ---------------------------------------------------------------- DLLogger, CSV, patterns


def test_dlll(write):
    text = "".join([
        "NVIDIA Release 19.09\n", dlll("PARAMETER", {"loss": 9}), dlll([0, 5], {"loss": 8.5}),
        "0: " + dlll([0, 10], {"loss": 8.25}), dlll([1, 7], {"loss": 8}), dlll([], {"loss": 6}),
        dlll(8, {"lr": 4}), dlll(9, {"loss": 3}, "METADATA"), dlll(8, {"loss": 5})[:-20],
    ])  # fmt: skip
    curve = read_curve(write(text, "log.json"))
    assert curve.steps.tolist() == ["0/5", "0/10", "1/7"] and curve.values.tolist() == [
        8.5,
        8.25,
        8,
    ]
    assert curve.notes == ("1 lines are not JSON and were left out",)


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_csv(write, delimiter):
    text = "epoch,step,val,loss\n0,1,,0.5\n0,2,7,\nepoch,step,val,loss\n1,3,, 0.25\n1,4,,0.1"
    curve = read_curve(write(text.replace(",", delimiter), "metrics.csv"))
    assert curve.steps.tolist() == ["0/1", "1/3"] and curve.values.tolist() == [0.5, 0.25]
    assert curve.notes == ("the last line is cut off and was left out",)
    assert "its rows have 'a', 'b'" in refused(write("a,b\n1,2\n", "x.csv"))
    assert "must be CSV, got an error" in refused(write("loss\n" + "1" * 200_000 + "\n", "x.csv"))


def test_patterns(write):
    path = write(
        "step 1 of epoch 0: loss 0.5\nother\nstep 2 of epoch 0: loss nan\nstep 3 of ep", "x"
    )
    pattern = r"step (?P<step_b>\d+) of epoch (?P<step_a>\d+): loss (?P<value>\S+)"
    curve = read_curve(path, pattern=pattern)
    assert curve.steps.tolist() == ["1/0", "2/0"] and math.isnan(curve.values[1])
    counted = read_curve(path, pattern=r"loss (?P<value>\S+)")
    assert counted.steps.tolist() == [0, 1] and not counted.labelled
    assert "must hold values of 'value', got none" in refused(path, pattern="nothing (?P<value>.)")


def test_formats_by_name(write):
    assert read_curve(write("a\n" + lines({"loss": 1}), "stdout")).values.tolist() == [1]
    assert read_curve(write("loss\n1\n", "x.CSV")).values.tolist() == [1]
    assert "must hold values of 'loss', got none" in refused(write("loss: 0.5\n", "stdout"))
    assert "'lr'" in refused(write(lines({"lr": 1})))


# ---------------------------------------------------------------- steps


def test_steps_have_their_epoch_if_rows_have_one(write):
    rows = [{"epoch": e, "step": s, "loss": e + s / 10} for e in range(2) for s in range(2)]
    assert named(write(lines(*rows))) == ["0/0", "0/1", "1/0", "1/1"]
    assert named(write(lines({"iter": 3, "loss": 1}))) == [3]
    assert named(write(lines({"epoch": 2, "loss": 1}))) == [2]


def test_the_last_value_of_a_repeated_step_counts(write):
    curve = read_curve(write(lines(*({"step": s, "loss": v} for s, v in ((0, 1), (1, 2), (0, 3))))))
    assert curve.steps.tolist() == [1, 0] and curve.values.tolist() == [2, 3]
    assert curve.notes == ("1 steps were repeated; the last value counts",)


def test_rows_without_the_step(write):
    path = write(lines({"e": 1, "step": 2, "loss": 3}, {"step": 4, "loss": 5}))
    curve = read_curve(path, step="e, step")
    assert curve.steps.tolist() == ["1/2"] and curve.values.tolist() == [3]
    assert curve.notes == ("1 values without a step were left out",)
    assert "with a step (Step), got none; its rows have" in refused(path, step="Step")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("3", 3), ("3.0", 3), ("-4", -4), ("0.25", "0.25"), ('"007"', 7), ('"a b"', "a b")),
        *(("[0, 12]", "0/12"), ("[0, [1, 2]]", "0/1/2"), ("null", None), ('""', None)),
    ],
)
def test_names_of_steps(write, text, name):
    path = write(f'{{"at": 9, "loss": 1}}\n{{"at": {text}, "loss": 2}}\n')
    assert named(path, step="at") == (
        [9] if name is None else [9, name] if isinstance(name, int) else ["9", name]
    )


def test_csv_steps_of_many_batches(write):
    rows = "".join(f"{i},{i / 7!r}\n" for i in range(1000))
    curve = read_curve(write("step,loss\n" + rows, "x.csv"))
    assert curve.steps.tolist() == list(range(1000)) and curve.values[999] == 999 / 7


# ---------------------------------------------------------------- any log


FORMATS = ("jsonl", "dlll", "csv", "regex")


@given(st.lists(st.floats(), min_size=1, max_size=30), st.sampled_from(FORMATS))
@settings(deadline=None, max_examples=50)
def test_every_double_is_read_exactly(tmp_path_factory, values, format):
    path = tmp_path_factory.mktemp("log") / f"log.{format}"
    pattern = None
    if format == "jsonl":
        path.write_text(lines(*({"step": i, "loss": value} for i, value in enumerate(values))))
    elif format == "dlll":
        path.write_text("".join(dlll(i, {"loss": v}) for i, v in enumerate(values)))
    else:
        path.write_text("step,loss\n" + "".join(f"{i},{v!r}\n" for i, v in enumerate(values)))
        pattern = r"(?P<step>\d+),(?P<value>.+)" if format == "regex" else None
    curve = read_curve(path, pattern=pattern)
    assert curve.steps.tolist() == list(range(len(values)))
    for found, value in zip(curve.values, values, strict=True):
        assert math.isnan(found) if math.isnan(value) else bits([found]) == bits([value])


@given(st.binary(max_size=300), st.sampled_from(FORMATS))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_a_curve_or_an_error(tmp_path_factory, data, format):
    path = tmp_path_factory.mktemp("log") / f"log.{format}"
    path.write_bytes(b"loss\n" + data if format == "csv" else data)
    try:
        curve = read_curve(path, pattern="(?P<value>.)" if format == "regex" else None)
    except ValueError as error:
        assert str(error).startswith("fastseed.tools.verify: ")
    else:
        assert len(curve.steps) == len(curve.values) > 0


@pytest.mark.slow
@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_the_time_to_read_is_linear(tmp_path, format):
    """A log of 4 times the size takes at most 8 times the time."""
    import time

    times = []
    for rows in (50_000, 200_000):
        path = tmp_path / f"{rows}.{format}"
        with open(path, "w") as file:
            file.write("step,loss\n" if format == "csv" else "")
            for i in range(rows):
                row = f"{i},{i / 7!r}\n" if format == "csv" else lines({"step": i, "loss": i / 7})
                file.write(row)
        begin = time.process_time()
        assert len(read_curve(path).steps) == rows
        times.append(time.process_time() - begin)
    assert times[1] < 8 * times[0] + 0.1
