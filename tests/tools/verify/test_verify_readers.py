"""Logs of every format are read to the last bit, and what is wrong with them is named."""

from __future__ import annotations

import json
import math
import os
import shlex
from decimal import Decimal

import numpy as np
import pytest
from helpers.written_logs import bits, dlll, lines
from hypothesis import given, settings
from hypothesis import strategies as st

from fastseed.tools.verify import log_rows
from fastseed.tools.verify.log_readers import FORMATS, read_curve, read_curves

# ---------------------------------------------------------------- JSON lines


def test_jsonl(write):
    path = write(lines({"step": 1, "loss": 0.5}, {"step": 1, "lr": 1}, {"step": 2, "loss": 0.25}))
    curve = read_curve(path)
    assert curve.steps == ("1", "2") and curve.values.tolist() == [0.5, 0.25]
    assert curve.values.dtype == np.float64 and curve.values.flags.writeable
    assert all(type(step) is str for step in curve.steps)
    assert (curve.labelled, curve.digits, curve.notes) == (True, 2, ())


def test_jsonl_null_is_no_value_and_text_amid_it_is_output(write):
    text = "starting\n" + lines({"step": 0, "loss": None}, {"step": 1, "loss": 2}) + "[1]\ndone\n"
    curve = read_curve(write(text))
    assert curve.steps == ("1",) and curve.notes == ()


def test_jsonl_dotted_keys(write):
    rows = {"at": {"step": 3}, "train": {"loss": 1.5}}, {"at.step": 4, "train.loss": 2.5}
    path = write(lines(*rows, {"at": 3, "train": 4}))
    curve = read_curve(path, value="train.loss", step="at.step")
    assert curve.steps == ("3", "4") and curve.values.tolist() == [1.5, 2.5]


def test_jsonl_nan_and_infinities_stay(write):
    path = write(
        '{"loss": NaN}\n{"loss": -Infinity}\n{"loss": 1e999}\n{"loss": -0.0}\n{"loss": 7}\n'
    )
    curve = read_curve(path)
    assert math.isnan(curve.values[0])
    assert bits(curve.values[1:]) == bits([-math.inf, math.inf, -0.0, 7.0])
    assert curve.digits == 1


def test_jsonl_a_number_as_text_is_one(write):
    assert read_curve(write(lines({"loss": " 1e-3 "}))).values.tolist() == [1e-3]


@pytest.mark.parametrize("value", ["abc", "0,5", "1_0", "٣", "", True, [1.0], {"a": 1}])
def test_jsonl_no_number_names_file_line_and_what(write, value):
    path = write(lines({"loss": 1}, {"loss": value}))
    with pytest.raises(ValueError, match=r"^fastseed\.verify: .*log\.jsonl:2: 'loss' must be a nu"):
        read_curve(path)


def test_jsonl_half_a_last_line(write):
    curve = read_curve(write('{"loss": 1}\n{"loss": 0.2'))
    assert curve.values.tolist() == [1] and curve.notes == ("the last line is cut off; left out",)
    whole = read_curve(write('{"loss": 1}\n{"loss": 0.25}'))
    assert whole.values.tolist() == [1, 0.25] and whole.notes == ()


def test_jsonl_broken_lines_are_noted(write):
    text = '{"loss": 1}\n{"step": 2, "lo{"step": 2, "loss": 2}\n{\'loss\': 3}\n{"loss": 4} x\n'
    curve = read_curve(write(text))
    assert curve.values.tolist() == [1]
    assert curve.notes == ("3 lines are no JSON and left out (line 2 is the first)",)


def test_jsonl_numbers_of_any_length(write):
    text = (
        f'{{"loss": {"9" * 5000}, "step": {"8" * 5000}}}\n{{"loss": 0.{"3" * 5000}, "step": 1}}\n'
    )
    curve = read_curve(write(text))
    assert curve.values.tolist() == [math.inf, 1 / 3]
    assert curve.steps == ("8" * 5000, "1") and curve.digits == 17


@given(st.lists(st.floats(), min_size=1, max_size=30), st.sampled_from(["jsonl", "csv", "dlll"]))
@settings(deadline=None)
def test_all_doubles_come_back(tmp_path_factory, values, format):
    path = tmp_path_factory.mktemp("log") / "log"
    rows = [{"step": i, "loss": value} for i, value in enumerate(values)]
    if format == "jsonl":
        path.write_text(lines(*rows))
    elif format == "csv":
        path.write_text("step,loss\n" + "".join(f"{i},{v!r}\n" for i, v in enumerate(values)))
    else:
        path.write_text("".join(dlll(i, {"loss": v}) for i, v in enumerate(values)))
    curve = read_curve(path, format=format)
    assert curve.steps == tuple(map(str, range(len(values))))
    for found, value in zip(curve.values, values, strict=True):
        assert math.isnan(found) if math.isnan(value) else bits([found]) == bits([value])
    written = [len(Decimal(repr(value)).as_tuple().digits) for value in values]
    assert curve.digits == max(
        [1, *(n for n, v in zip(written, values, strict=True) if v - v == 0)]
    )


# ---------------------------------------------------------------- steps


def test_steps_first_key_that_rows_with_a_value_have(write):
    rows = {"step": 9, "lr": 1}, {"iteration": 4, "epoch": 1, "loss": 1}
    assert read_curve(write(lines(*rows))).steps == ("4",)
    assert read_curve(write(lines({"epoch": 2, "loss": 1}))).steps == ("2",)


def test_steps_are_counted_without_any(write):
    curve = read_curve(write(lines({"loss": 3}, {"loss": 2}, {"loss": 1})))
    assert curve.steps == ("0", "1", "2") and not curve.labelled


def test_steps_that_restart_are_prefixed_by_their_epoch(write):
    rows = [{"epoch": e, "step": s, "loss": e + s / 10} for e in range(2) for s in range(3)]
    assert read_curve(write(lines(*rows))).steps == ("0/0", "0/1", "0/2", "1/0", "1/1", "1/2")


def test_steps_that_a_resumed_run_repeats_do_not_restart(write):
    rows = [{"epoch": s // 2, "step": s, "loss": s} for s in (0, 1, 2, 3, 2, 3, 4)]
    curve = read_curve(write(lines(*rows)))
    assert curve.steps == ("0", "1", "2", "3", "4")
    assert curve.notes == ("2 steps were given again; the last one counts",)


def test_curves_that_are_compared_name_steps_alike(write):
    rows = [{"epoch": e, "step": s, "loss": e + s / 10} for e in range(2) for s in range(2)]
    paths = write(lines(*rows), "whole.jsonl"), write(lines(*rows[:2]), "half.jsonl")
    whole, half = read_curves(paths)
    assert half.steps == ("0/0", "0/1") == whole.steps[:2]
    assert read_curve(paths[1]).steps == ("0", "1")  # which alone does not tell


def test_steps_given(write):
    path = write(lines({"e": 1, "step": 2, "loss": 3}, {"step": 4, "loss": 5}))
    curve = read_curve(path, step="e, step")
    assert curve.steps == ("1/2",)
    assert curve.notes == ("1 value has no step; left out",)
    with pytest.raises(ValueError, match=r"got 'Step'; there are 'e', 'step', 'loss' \(did you"):
        read_curve(path, step="Step")


@pytest.mark.parametrize("step", ["", ",", "a,", "a,a"])
def test_steps_that_are_no_keys(write, step):
    with pytest.raises(ValueError, match="step must be keys"):
        read_curve(write(lines({"loss": 1})), step=step)


def test_a_step_twice_the_last_wins_in_the_place_of_the_first(write):
    rows = [{"step": s, "loss": v} for s, v in ((0, 1), (1, 2), (0, 3), (2, 4))]
    curve = read_curve(write(lines(*rows)))
    assert curve.steps == ("0", "1", "2") and curve.values.tolist() == [3, 2, 4]
    assert curve.notes == ("1 step was given again; the last one counts",)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *(("3", "3"), ("3.0", "3"), ("3e0", "3"), ("-0.0", "0"), ("-4", "-4"), ("0.25", "0.25")),
        *(('"007"', "7"), ('" +3. "', "3"), ('"a b"', "a b"), ("[0, 12]", "0/12")),
        *(('"12345678901234567890123"', "12345678901234567890123"), ("1e300", "1e300")),
        *((text, None) for text in ("null", "true", '""', "[]", "[1, null]", "{}", "NaN")),
    ],
)
def test_names_of_steps(write, text, name):
    path = write(f'{{"at": {text}, "loss": 1}}\n{{"at": "last", "loss": 2}}\n')
    curve = read_curve(path, step="at")
    assert curve.steps == (("last",) if name is None else (name, "last"))
    assert curve.values.tolist() == ([2] if name is None else [1, 2])


# ---------------------------------------------------------------- which format


def test_format_is_told_by_what_stands_in_it(write):
    assert read_curve(write("a\n" + lines({"loss": 1}), "stdout")).values.tolist() == [1]
    assert read_curve(write("a\n" + dlll(3, {"loss": 1}), "stdout")).steps == ("3",)
    assert read_curve(write("a 1 \n", "x.json"), pattern="a (.)").values.tolist() == [1]
    assert read_curve(write("loss\n1\n", "x.json"), format="csv").values.tolist() == [1]


def test_format_that_nothing_tells(write):
    with pytest.raises(ValueError, match=r"format must be given for .*stdout: .*'jsonl'.*pattern="):
        read_curve(write("loss: 0.5\n{'loss': 1}\n", "stdout"))
    with pytest.raises(ValueError, match="got an empty file"):
        read_curve(write("", "stdout"))
    with pytest.raises(ValueError, match="looks like UTF-16"):
        read_curve(write("loss: 1\n".encode("utf-16"), "stdout"))
    with pytest.raises(ValueError, match="looks like gzip"):
        read_curve(write(b"\x1f\x8b\x08\x00 x\n", "log.jsonl"))


@pytest.mark.parametrize("name", ["format", "value", "step", "pattern"])
def test_arguments_of_another_type(write, name):
    with pytest.raises(TypeError, match=rf"fastseed\.verify: {name} must be a string, got 3 of"):
        read_curve(write(lines({"loss": 1})), **{name: 3})


def test_arguments_that_do_not_fit(write, tmp_path):
    path = write(lines({"loss": 1}))
    for arguments, message in (
        ({"format": "yaml"}, "format must be one of"),
        ({"value": ""}, "value must be the name"),
        ({"format": "dlll", "step": "a"}, "step must be None with 'dlll'"),
        ({"format": "csv", "pattern": "(a)"}, "pattern must be None with 'csv', got '.a.'"),
        ({"format": "regex"}, "pattern must be given with 'regex'"),
    ):
        with pytest.raises(ValueError, match=message):
            read_curve(path, **arguments)
    with pytest.raises(ValueError, match="path must be a file with 'csv', got the folder"):
        read_curve(tmp_path, format="csv")
    with pytest.raises(TypeError, match="path must be a path, got 3 of type int"):
        read_curve(3)
    with pytest.raises(ValueError, match="path must be a path"):
        read_curve("a\0b")
    assert len(FORMATS) == 5


def test_a_path_that_does_not_exist(write, tmp_path):
    path = write("x", "there.csv").with_name("loss.csv")
    with pytest.raises(FileNotFoundError, match=r"fastseed\.verify: .*its folder holds there\.csv"):
        read_curve(path)
    with pytest.raises(FileNotFoundError, match="nor is there its folder"):
        read_curve(tmp_path / "no" / "loss.csv")


# ---------------------------------------------------------------- hostile logs


def test_what_is_no_utf8_is_replaced(write):
    curve = read_curve(write(b'\xff\xfe\xfd\n{"loss": 1, "name": "\xff"}\n'))
    assert curve.values.tolist() == [1]


def test_lines_that_are_too_long_are_left_out(write):
    long = json.dumps({"loss": 5, "x": "a" * log_rows.MAX_LINE})
    one = '{"loss": 1}'
    curve = read_curve(write(f"{one}\n{long}\n{one}\n{long}{long}\n{long}"))
    assert curve.values.tolist() == [1, 1]
    assert curve.notes == ("3 lines are longer than 1 MiB; left out",)
    edge = '{"loss": 2}'.ljust(log_rows.MAX_LINE)
    curve = read_curve(write(f"{edge}\n{edge} \n{edge}"))
    assert curve.values.tolist() == [2, 2]


@pytest.mark.parametrize("bomb", ['{"a":' * 200_000, '{"a":' + "[" * 500_000])
@pytest.mark.parametrize("before", ["", "DLLL "])
def test_nesting_is_no_crash(write, bomb, before):
    path = write(f"{before}{bomb}\n", "log")
    with pytest.raises(ValueError, match=r"log:1: a line must not nest so deeply"):
        read_curve(path, format="dlll" if before else "jsonl")


def test_nesting_does_not_stop_telling_the_format(write):
    with pytest.raises(ValueError, match="format must be given"):
        read_curve(write('{"a":' * 100_000 + "\n", "log"))


def test_more_values_than_may_be(write, monkeypatch):
    monkeypatch.setattr(log_rows, "MAX_VALUES", 3)
    assert len(read_curve(write('{"loss": 1}\n' * 3)).values) == 3
    with pytest.raises(ValueError, match="must hold at most 3 values, got more"):
        read_curve(write('{"loss": 1}\n' * 4))


def test_an_error_is_short_whatever_the_log_holds(write):
    wide = {f"key {i} " + "x" * 500: i for i in range(1000)}
    with pytest.raises(ValueError, match=r", … ?") as error:
        read_curve(write(lines(wide)))
    assert len(str(error.value)) < 3000


@pytest.mark.timeout(20)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    for name in ("log.jsonl", "log.csv", "log", "events.out.tfevents.1.x"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="must be a regular file"):
            read_curve(tmp_path / name)


@given(st.binary(max_size=300), st.sampled_from(["jsonl", "dlll", "csv", "regex"]))
@settings(deadline=None, max_examples=200)
def test_any_bytes_are_a_curve_or_an_error(tmp_path_factory, data, format):
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(b"loss\n" + data if format == "csv" else data)
    try:
        curve = read_curve(path, format=format, pattern="(.)" if format == "regex" else None)
    except ValueError as error:
        assert str(error).startswith("fastseed.tools.verify: ")
    else:
        assert len(curve.steps) == len(curve.values) > 0


@pytest.mark.parametrize(
    ("line", "steps", "value"),
    [
        ("step 12 loss 0.3456", ("12",), 0.3456),
        ("Epoch [1/10], Step [100/600], Loss: 0.25, accuracy: 0.5", ("1/100",), 0.25),
        ("epoch=3 train_loss=-1e-3", ("3",), -1e-3),
        ("loss 0.5", ("0",), 0.5),
    ],
)
def test_lines_in_words_are_refused_with_a_pattern_that_reads_them(tmp_path, line, steps, value):
    path = tmp_path / "stdout.txt"
    path.write_text(f"begin\nno loss yet\n{line}\n")
    with pytest.raises(ValueError, match="one that fits is") as refused:
        read_curve(path)
    (pattern,) = shlex.split(str(refused.value).rpartition(" one that fits is ")[2])
    curve = read_curve(path, pattern=pattern)
    assert (curve.steps, list(curve.values)) == (steps, [value])


def test_no_pattern_is_made_up(tmp_path):
    path = tmp_path / "stdout.txt"
    path.write_text("the loss is small\n" + "loss" * 100_000 + "\n" + "epoch " * 100_000 + "loss\n")
    with pytest.raises(ValueError, match=r"a group named 'value'$"):
        read_curve(path)
