"""DLLogger's lines, CSV, and patterns in any line."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from helpers.written_logs import bits, dlll

from fastseed.tools.verify.log_readers import read_curve

# ---------------------------------------------------------------- DLLogger


def test_dlll(write):
    metadata = '{"type": "METADATA", "metric": "train.loss", "metadata": {"unit": ""}}'
    text = "".join([
        *("NVIDIA Release 19.09\n", dlll("PARAMETER", {"loss": 9, "lr": 0.1})),
        *(f"DLLL {metadata}\n", dlll([0, 5], {"train.loss": 8.5}), dlll([0, 5], {"lr": 0.1})),
        *("0: " + dlll([0, 10], {"train.loss": 8.25}), "[rank0]: " + dlll(7, {"train.loss": 8})),
        *(dlll([0], {"train.loss": 7}), dlll([], {"train.loss": 6}), dlll(None, {"train.loss": 5})),
        *("print('" + dlll(8, {"train.loss": 4}), dlll(9, {"train.loss": 3}, "METADATA")),
    ])  # fmt: skip
    for name in ("log.txt", "raport.json"):  # DLLogger's files are called so
        curve = read_curve(write(text, name), value="train.loss")
        assert curve.steps == ("0/5", "0/10", "7", "0")
        assert curve.values.tolist() == [8.5, 8.25, 8, 7]
        assert curve.labelled and curve.notes == ()


def test_dlll_amid_progress_bars_and_two_in_a_line(write):
    one, two = dlll(1, {"loss": 1}).strip(), dlll(2, {"loss": 2}).strip()
    curve = read_curve(write(f"\r 10%|█  | 1/9\r{one}{two}\r\n", "log"))
    assert curve.steps == ("1", "2")


def test_dlll_broken_and_half_lines(write):
    text = dlll(1, {"loss": 1}) + "DLLL {nothing\n" + dlll(2, {"loss": 2})[:-9]
    curve = read_curve(write(text, "log"))
    assert curve.steps == ("1",)
    assert curve.notes == (
        "1 line is no JSON and left out (line 2)",
        "the last line is cut off; left out",
    )


def test_dlll_says_which_metrics_there_are(write):
    path = write(dlll(1, {"train.loss": 1}), "log")
    with pytest.raises(ValueError, match=r"none in 1 row; there are 'train\.loss' \(did you mean"):
        read_curve(path)


# ---------------------------------------------------------------- CSV


@pytest.mark.parametrize("mark", [",", "\t", ";", "|"])
def test_csv(write, mark):
    rows = "step,loss,note", "0,0.5,x", '1,,"y"', "", '2, 0.125 ,"a\nb"'
    path = write("\r\n".join(rows).replace(",", mark) + "\r\n", "log.csv")
    curve = read_curve(path)
    assert curve.steps == ("0", "2") and curve.values.tolist() == [0.5, 0.125]
    assert curve.digits == 3 and curve.notes == ()


def test_csv_a_byte_order_mark_and_a_tsv(write):
    curve = read_curve(write(b"\xef\xbb\xbfloss\tstep\n1\t7\n", "log.tsv"))
    assert curve.steps == ("7",)


def test_csv_a_header_again(write):
    curve = read_curve(write("step,loss\n0,1\nstep,loss\n1,2\n", "log.csv"))
    assert curve.values.tolist() == [1, 2] and curve.notes == ("the header stands 1 more time",)


def test_csv_a_last_line_without_an_end(write):
    for text in ("step,loss\n0,0.25\n1,0.2", "step,loss\n0,0.25\n1", "loss,step,x\n.25,0,a\n.5,12"):
        curve = read_curve(write(text, "log.csv"))
        assert curve.values.tolist() == [0.25]
        assert curve.notes == ("the last line is cut off; left out",)
    assert read_curve(write("loss,x\n1,a\n2,b", "log.csv")).values.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,loss\n0,1\n1,None\n", r"log\.csv:3: 'loss' must be a number, got 'None'"),
        ("step;loss\n0;0,5\n", r"log\.csv:2: 'loss' must be a number, got '0,5'"),
        ("step,Loss\n0,1\n", r"none in 1 row; there are 'step', 'Loss' \(did you mean 'Loss'\?\)"),
        ("step,loss\n0,\n", r"none in 1 row; there are 'step'"),
        ("loss,loss\n0,1\n", "a column must be there once, got 2 of 'loss'"),
        ("step,loss\n", "got no rows at all"),
        ("", "got no rows at all"),
        ('loss\n"' + "a" * 200_000 + "\n", r"log\.csv:2: must be CSV, got an error"),
    ],
)
def test_csv_refusals(write, text, message):
    with pytest.raises(ValueError, match=message):
        read_curve(write(text, "log.csv"))


def test_csv_of_lightning(tmp_path):
    loggers = pytest.importorskip("lightning.fabric.loggers")
    logger = loggers.CSVLogger(tmp_path, name="", version="", flush_logs_every_n_steps=2)
    losses = np.random.Generator(np.random.PCG64(1)).standard_normal(6)
    for i, loss in enumerate(losses):
        logger.log_metrics({"train_loss": float(loss), "epoch": i // 3}, i)
        logger.log_metrics({"lr": 0.1}, i)
        if i % 3 == 2:
            logger.log_metrics({"val_loss": 1.0, "epoch": i // 3}, i)
    logger.finalize("success")
    (path,) = tmp_path.rglob("metrics.csv")
    assert any(row["train_loss"] == "" for row in csv.DictReader(path.read_text().splitlines()))
    curve = read_curve(path, value="train_loss")
    assert curve.steps == ("0", "1", "2", "3", "4", "5")
    assert bits(curve.values) == bits(losses)
    with pytest.raises(ValueError, match=r"did you mean 'val_loss'|did you mean 'train_loss'"):
        read_curve(path)


# ---------------------------------------------------------------- patterns


def test_regex(write):
    path = write("hello\nstep 3: loss=0.50 (x)\nstep 4: loss=nan\n", "out.txt")
    curve = read_curve(path, pattern=r"step (?P<step>\d+): loss=(?P<value>\S+)")
    assert curve.steps == ("3", "4") and curve.values[0] == 0.5 and math.isnan(curve.values[1])
    assert curve.digits == 2 and curve.labelled
    curve = read_curve(path, pattern=r"loss=(\S+)")
    assert curve.steps == ("0", "1") and not curve.labelled


def test_regex_several_groups_of_steps(write):
    path = write("1/02: 0.5\n1/x: 0.25\n", "out.txt")
    curve = read_curve(path, pattern=r"(?P<step_a>\d+)/(?P<step_b>\d*).*: (?P<value>\S+)")
    assert curve.steps == ("1/2",) and curve.notes == ("1 value has no step; left out",)


def test_regex_a_last_line_without_an_end(write):
    path = write("loss 0.25 ok\nloss 0.2", "out.txt")
    curve = read_curve(path, pattern=r"loss (\S+)")
    assert curve.values.tolist() == [0.25]
    assert curve.notes == ("the last line is cut off; left out",)
    path = write("loss 0.25 ok\nloss 0.5 o", "out.txt")
    assert read_curve(path, pattern=r"loss (\S+)").values.tolist() == [0.25, 0.5]


@pytest.mark.parametrize("pattern", ["(", "loss", "(a)(b)", "(?P<step>a)", "a{99999999999}", ""])
def test_regex_that_is_none_or_has_no_group(write, pattern):
    with pytest.raises(ValueError, match=r"^fastseed\.verify: pattern must "):
        read_curve(write("a\n", "out.txt"), pattern=pattern)


def test_regex_refusals(write):
    path = write("loss 0.5,\n", "out.txt")
    with pytest.raises(ValueError, match=r"out\.txt:1: 'value' must be a number, got '0.5,'"):
        read_curve(path, pattern=r"loss (\S+)")
    with pytest.raises(ValueError, match=r"none in 1 row; no line fits 'lass"):
        read_curve(path, pattern=r"lass (\S+)")
    with pytest.raises(ValueError, match=r"none in 1 row; the last line is cut off; left out$"):
        read_curve(write("loss 0.5", "out.txt"), pattern=r"loss (\S+)")
