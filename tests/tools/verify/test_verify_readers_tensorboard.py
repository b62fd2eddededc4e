"""TensorBoard's event files, as torch writes them."""

from __future__ import annotations

import math
import os
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("tensorboard")

from torch.utils.tensorboard import SummaryWriter

from fastseed.tools.verify.log_readers import read_curve


@pytest.fixture
def write(tmp_path):
    """Writes values under a tag into a folder: one more file with each call."""
    count = iter(range(100))

    def write(values, start=0, folder="", tag="loss", **how):
        suffix = f".{next(count):03}"  # within one second, files are in the order of their names
        with SummaryWriter(tmp_path / folder, filename_suffix=suffix) as writer:
            for i, value in enumerate(values):
                writer.add_scalar(tag, value, start + i, **how)
                writer.add_scalar("lr", 0.1, start + i)
                writer.add_histogram("weights", torch.arange(3), start + i)
        return tmp_path

    return write


def test_scalars_are_all_there(write):
    values = np.random.Generator(np.random.PCG64(1)).standard_normal(10_050).astype(np.float32)
    folder = write([])
    with SummaryWriter(folder) as writer:  # TensorBoard's own default keeps 10,000
        for i, value in enumerate(values):
            writer.add_scalar("loss", value, i)
    curve = read_curve(folder)
    assert curve.steps == tuple(map(str, range(10_050)))
    assert (curve.values == values.astype(np.float64)).all()
    assert (curve.labelled, curve.digits, curve.notes) == (True, 9, ())


@pytest.mark.parametrize("new", [False, True])
def test_every_float32_comes_back(write, new):
    values = [0.1, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3.4028235e38]
    curve = read_curve(write(values, new_style=new))
    expected = np.array(values, np.float32).astype(np.float64)
    assert (curve.values.view(np.int64) == expected.view(np.int64)).all()
    assert curve.digits == 9


def test_doubles_in_tensors(write):
    curve = read_curve(write([0.1], new_style=True, double_precision=True))
    assert curve.values.tolist() == [0.1] and curve.digits == 17


def test_a_file_alone(write):
    (path,) = write([1.0, 2.0]).iterdir()
    assert read_curve(path).values.tolist() == [1, 2]
    other = path.rename(path.with_name("log"))
    assert read_curve(other, format="tensorboard").values.tolist() == [1, 2]


def test_files_of_one_run_are_put_together(write):
    write([1, 2, 3, 4])
    curve = read_curve(write([30, 40, 50], start=2))
    assert curve.steps == ("0", "1", "2", "3", "4")
    assert curve.values.tolist() == [1, 2, 30, 40, 50]
    assert curve.notes == ("2 steps were given again; the last one counts",)


def test_files_are_in_the_order_of_their_time_not_of_their_folder(write):
    folder = write([1, 2], folder="b")
    write([20, 30], start=1, folder="a/deep")
    for name, time in (("b", 999), ("a/deep", 1000)):
        (path,) = (folder / name).iterdir()
        path.rename(path.with_name(f"events.out.tfevents.{time}.host"))
    curve = read_curve(folder)
    assert curve.values.tolist() == [1, 20, 30]
    assert curve.notes[0] == "put together from 2 folders"


def test_steps_that_go_back_within_a_file(write, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step, value in ((0, 1), (1, 2), (2, 3), (1, 20)):
            writer.add_scalar("loss", value, step)
    assert read_curve(tmp_path).values.tolist() == [1, 20, 3]


def test_a_tag_that_is_not_there(write):
    folder = write([1.0], tag="train/loss")
    with pytest.raises(ValueError, match=r"there are 'train/loss', 'lr' \(did you mean 'train"):
        read_curve(folder)
    assert read_curve(folder, value="train/loss").values.tolist() == [1]


def test_a_folder_without_events(tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=r"must hold files named \*tfevents\*, got a folder"):
        read_curve(tmp_path)


def test_a_file_that_a_killed_run_left(write):
    (path,) = write([1.0, 2.0, 3.0]).iterdir()
    data = path.read_bytes()
    for rest in (data[:-100], data[:-1], data + bytes(64), data + b"abc"):
        path.write_bytes(rest)
        curve = read_curve(path)
        assert curve.values.tolist() in ([1, 2], [1, 2, 3])
        (note,) = curve.notes
        assert path.name in note and "cut off or damaged after " in note
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="got no rows at all"):
        read_curve(path)


def test_a_damaged_file_is_told(write):
    (path,) = write([1.0, 2.0, 3.0]).iterdir()
    data = bytearray(path.read_bytes())
    for i in range(0, len(data), 29):
        data[i] ^= 0x55
        path.write_bytes(data)
        data[i] ^= 0x55
        try:
            curve = read_curve(path)
        except ValueError as error:
            assert "cut off or damaged after" in str(error)
        else:
            assert curve.values.tolist() in ([1], [1, 2], [1, 2, 3])
            assert "cut off or damaged after" in curve.notes[0]


@pytest.mark.parametrize("data", [b"what is no record at all, but long enough", bytes(200)])
def test_a_file_of_something_else(tmp_path, data):
    path = tmp_path / "events.out.tfevents.1.x"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"no rows at all; .* damaged after 0 events"):
        read_curve(path)


def test_records_that_are_no_events(write, tmp_path):
    """A record with right checksums, of bytes that protobuf refuses."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    path = tmp_path / "events.out.tfevents.1.x"
    with open(path, "wb") as file:
        RecordWriter(file).write(b"\xff" * 20)
    with pytest.raises(ValueError, match=r"fastseed\.verify: .* got damaged ones"):
        read_curve(path)


def test_tensors_that_are_no_scalars(write, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("loss", "0.5", 0)
        writer.add_histogram("loss", torch.arange(3), 0)
        writer.add_scalar("lr", 1, 0)
    with pytest.raises(ValueError, match="none in 1 row; there are 'lr'"):
        read_curve(tmp_path)


def test_step_does_not_apply(write):
    with pytest.raises(ValueError, match="step must be None with 'tensorboard'"):
        read_curve(write([1.0]), step="epoch")


def test_without_the_package_the_error_names_the_extra(write, monkeypatch):
    folder = write([1.0])
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match=r'pip install "fastseed\[tensorboard\]"'):
        read_curve(folder)


@pytest.mark.timeout(20)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "events.out.tfevents.1.x")
    with pytest.raises(ValueError, match="must be a regular file"):
        read_curve(tmp_path)
