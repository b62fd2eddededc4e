"""Files of Watch: incomplete files are read, damaged files are refused."""

import json
import os
import time
import zlib

import pytest
import torch
from helpers.paths import ROOT
from torch import nn

from fastseed.debug import Watch, bisect, watch_file
from fastseed.debug.watch_file import Entry, Recording, Writer, line_of
from fastseed.digest.trees import Leaf, digest

HEADER = {"rank": 0, "world_size": 1, "every": 1, "groups": ["parameter"], "torch": "2.13.0"}
ROW = ["parameter", "w", "float32", [2]]


def step_of(step, *values, table=0, start=False):
    digests = "".join(f"{value:032x}" for value in values)
    return line_of({"step": step, "start": start, "table_number": table, "digests": digests})


def head(**more):
    return line_of({"format": "fastseed watch 2", **HEADER, **more})


def table(*rows):
    return line_of({"table": rows or [ROW]})


@pytest.fixture
def recorded(tmp_path):
    """A file of three steps, and how many bytes it had after each record."""
    path = tmp_path / "run" / "rank-0.watch"
    torch.manual_seed(1)
    model, ends = nn.Linear(2, 2), []
    with Watch(model, path=path.parent) as watch:
        ends.append(path.stat().st_size)
        for _ in range(3):
            watch.record()
            ends.append(path.stat().st_size)
    return path, ends


def test_the_format_is_the_documented_one(tmp_path):
    """As docs/spec/file-formats.md names the members."""
    text = (ROOT / "docs/spec/file-formats.md").read_text("utf-8")
    assert watch_file.FORMAT in text
    for member in ("crc32", "table", "table_number", "digests"):
        assert f"`{member}`" in text, member
    model = nn.Linear(2, 1)
    with Watch(
        model,
        path=tmp_path,
        step=7,
        every=7,
        groups=("buffer", "gradient", "optimizer", "parameter"),
    ) as watch:
        watch.record()
    header, rows, *steps = lines = (tmp_path / "rank-0.watch").read_bytes().splitlines(True)
    for line in lines:
        assert line.startswith(b'{"crc32": "') and zlib.crc32(line[19:]) == int(line[11:19], 16)
    header, rows, *steps = map(json.loads, lines)
    assert header["format"] == watch_file.FORMAT
    assert (header["rank"], header["world_size"], header["every"]) == (0, 1, 7)
    assert header["groups"] == ["forward", "buffer", "gradient", "parameter"]
    assert rows["table"] == [
        ["parameter", "weight", "float32", [1, 2]],
        ["parameter", "bias", "float32", [1]],
    ]
    expected = "".join(digest(p).table[""].hex for p in (model.weight, model.bias))
    for members, step, start in zip(steps, (6, 7), (True, False), strict=True):
        del members["crc32"]
        assert members == {"step": step, "start": start, "table_number": 0, "digests": expected}


def test_any_prefix_is_read_up_to_its_last_whole_record(recorded, tmp_path):
    path, ends = recorded
    data = path.read_bytes()
    whole = Recording(path)
    cut = tmp_path / "cut"
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        steps = sum(end <= size for end in ends)
        if steps:
            found = Recording(cut)
            assert list(found.steps) == list(range(-1, steps - 1))
            assert all(found.values(s) == whole.values(s) for s in found.steps)
            assert found.incomplete == (size not in ends)
        elif size <= data.index(b"\n"):
            with pytest.raises(ValueError, match="must be a file of fastseed"):
                Recording(cut)
    cut.write_bytes(data[: ends[1] + 5])
    assert "the last record of b is incomplete" in bisect(path, cut).notes


def test_any_damaged_byte_is_refused(recorded, tmp_path):
    path, _ = recorded
    data, damaged = path.read_bytes(), tmp_path / "damaged"
    for at in range(len(data) - 1):
        damaged.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r"debug.bisect: .*(is damaged at byte|must be a)"):
            Recording(damaged)
    damaged.write_bytes(data[:-1] + b"x")  # the end of the last line
    assert Recording(damaged).incomplete


def test_zeros_after_a_crash_are_accepted(recorded, tmp_path):
    path, ends = recorded
    file = tmp_path / "zeros"
    file.write_bytes(path.read_bytes() + bytes(5000))
    found = Recording(file)
    assert found.incomplete and found.end == ends[-1] and len(found.steps) == 4
    file.write_bytes(path.read_bytes() + bytes(500) + b"x")
    with pytest.raises(ValueError, match="damaged"):
        Recording(file)


def test_appending_after_a_crash(recorded):
    path, ends = recorded
    with open(path, "ab") as file:
        file.write(step_of(3, 1, 2)[:-3])
    torch.manual_seed(1)
    with Watch(nn.Linear(2, 2), path=path.parent, step=3, append=True) as watch:
        watch.record()
    found = Recording(path)
    assert list(found.steps) == [-1, 0, 1, 2, 3] and not found.incomplete
    assert found.values(3) == found.values(2)._replace()
    assert found.end - ends[-1] == ends[-1] - ends[-2]  # the table is not repeated


def damaged_line(rest):
    """A line with a correct checksum and any content."""
    rest += b"\n"
    return b'{"crc32": "' + f"{zlib.crc32(rest):08x}".encode() + rest


STEP = {"step": 0, "start": False, "table_number": 0}
BAD = {
    "nothing": b"",
    "text": b"step,loss\n0,1.0\n" * 9,
    "another version": line_of({**HEADER, "format": "fastseed watch 3"}),
    "no header but a table": table(),
    "a header with a list as rank": head(rank=[1]),
    "a header with a number as groups": head(groups=7),
    "no JSON": head() + damaged_line(b'", \xff{'),
    "deep JSON": head() + damaged_line(b'", "table": ' + b"[" * 100_000),
    "a short row": head() + table(["parameter", "w"]),
    "a step without a table": head() + step_of(0, 1),
    "a long step": head() + table() + step_of(0, 1, 2),
    "digests with blanks": head() + table() + line_of({**STEP, "digests": "0" * 30 + "  "}),
    "digests of other digits": head() + table() + step_of(0, 1).replace(b"0001", b"000g"),
    "another kind": head() + line_of({"more": 1}),
    "text between lines": head() + b"more\n" + table(),
}


@pytest.mark.parametrize("name", BAD)
def test_other_files_are_refused(tmp_path, name):
    path = tmp_path / "rank-0.watch"
    path.write_bytes(BAD[name])
    with pytest.raises(
        ValueError, match=r"^fastseed.debug.bisect: (path must be|'.*rank-0.watch' is damaged)"
    ):
        bisect(path, path)


def test_folders_and_steps_without_anything_in_common(tmp_path):
    for name, step in (("a", 0), ("b", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank-0.watch").write_bytes(head() + table() + step_of(step, 1))
    with pytest.raises(ValueError, match="a and b must have a step in common"):
        bisect(tmp_path / "a", tmp_path / "b")
    rule = r"must be a folder with recordings of fastseed.debug.Watch, or one of its files"
    with pytest.raises(ValueError, match=rf"^fastseed.debug.bisect: a {rule}, got"):
        bisect(tmp_path, tmp_path / "b")
    with pytest.raises(ValueError, match=rf"^fastseed.debug.bisect: b {rule}, that exists, got"):
        bisect(tmp_path / "a", tmp_path / "c")


def test_the_folder_of_a_run_is_its_recording(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "watch").mkdir(parents=True)
        (tmp_path / name / "watch" / "rank-0.watch").write_bytes(head() + table() + step_of(0, 1))
    found = bisect(tmp_path / "a", tmp_path / "b" / "watch")
    assert found.equal and found.compared == 1


@pytest.mark.parametrize("name", ["parameter", "generator"])
def test_tables_of_many_steps_that_differ_are_not_built(tmp_path, monkeypatch, name):
    groups = ["generator", "parameter"]
    for run in range(2):
        (tmp_path / str(run)).mkdir()
        writer = Writer(tmp_path / str(run) / "rank-0.watch", {**HEADER, "groups": groups})
        for step in range(50):
            rows = {
                f"{group} w": Leaf(run if group == name else 7, "uint8", ()) for group in groups
            }
            writer.step(step, rows, False)
        writer.close()
    built, by_name = [], watch_file.Values.by_name
    monkeypatch.setattr(
        watch_file.Values, "by_name", lambda values: built.append(values) or by_name(values)
    )
    found = bisect(tmp_path / "0", tmp_path / "1")
    assert found.step == 0 and found.first.name == f"{name} w" and len(built) == 2
    assert found.differing == (50 if name == "parameter" else 1)  # later it is unused


def test_differences_are_in_the_order_of_a_training_step():
    one, two = Leaf(1, "int", ()), Leaf(2, "int", ())
    a = {("parameter", "w"): one, ("gradient", "w"): one}
    b = {("parameter", "w"): two, ("gradient", "w"): one, ("buffer", "b"): two}
    found = watch_file.differences(a, b)
    assert [(d.name, d.a, d.b) for d in found] == [
        ("buffer b", None, two),
        ("parameter w", one, two),
    ]


def test_tables_are_written_when_they_change(tmp_path):
    path = tmp_path / "rank-0.watch"
    writer = Writer(path, HEADER)
    one, other = (Entry("parameter", "w", "float32", (n,)) for n in (1, 2))
    for step, n in enumerate([1, 2, 1, 2, 2]):
        writer.step(step, {"parameter w": Leaf(step, "float32", (n,))}, False)
    writer.close()
    writer.close()
    found = Recording(path)
    assert found.tables == [(one,), (other,)]
    assert [table for *_, table in found.steps.values()] == [0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("written", "error"),
    [
        (10, OSError(28, "No space left on device")),
        (10, None),  # a short write
        (0, KeyboardInterrupt()),
        (10_000, KeyboardInterrupt()),
    ],
)
def test_a_full_disk_or_an_interrupt_leaves_whole_records(tmp_path, written, error):
    path = tmp_path / "rank-0.watch"
    writer = Writer(path, HEADER)
    writer.step(0, {"parameter w": Leaf(1, "float32", (1,))}, False)
    real = writer._file

    class Failing:
        truncate, seek, close = real.truncate, real.seek, real.close

        def write(self, data):
            count = real.write(data[:written])
            if error:
                raise error
            return count

    writer._file = Failing()
    with pytest.raises(type(error or OSError()), match="No space left" if written == 10 else None):
        writer.step(1, {"parameter v": Leaf(2, "float32", (1,))}, False)
    writer._file = real
    for step in (2, 3):
        writer.step(step, {"parameter v": Leaf(step, "float32", (1,))}, False)
    writer.close()
    found = Recording(path)
    assert list(found.steps) == [0, 2, 3] and not found.incomplete
    assert found.values(3).by_name() == {("parameter", "v"): Leaf(3, "float32", (1,))}


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "sparse", "sparse after a header"])
def test_files_without_end_are_refused_at_once(tmp_path, kind):
    path = tmp_path / "rank-0.watch"
    if kind.startswith("sparse"):
        path.write_bytes(head() if "header" in kind else b"")
        os.truncate(path, 40 << 30)
    else:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe if "link" in kind else path)
        if "link" in kind:
            path.symlink_to(pipe)
    begin = time.monotonic()
    with pytest.raises(ValueError, match=r"^fastseed.debug.bisect: .*rank-0.watch'"):
        bisect(tmp_path, tmp_path)
    with pytest.raises(ValueError, match=r"^fastseed.debug.bisect: .*rank-0.watch'"):
        Watch(nn.Linear(1, 1), path=tmp_path, append=True)
    assert time.monotonic() - begin < 5


def test_a_file_that_cannot_be_read_is_named():
    with pytest.raises(OSError, match=r"^fastseed.debug.bisect: '/proc/self/mem' cannot be read"):
        bisect("/proc/self/mem", "/proc/self/mem")


@pytest.mark.parametrize(
    ("argument", "given"),
    [("groups", {"modules": True}), ("groups", {"groups": ["parameter"]}), ("every", {"every": 2})],
)
def test_a_recording_is_continued_with_its_own_arguments(tmp_path, argument, given):
    Watch(nn.Linear(2, 2), path=tmp_path).close()
    before = (tmp_path / "rank-0.watch").read_bytes()
    rule = f"^fastseed.debug.Watch: {argument} must be as in the recording to continue"
    with pytest.raises(ValueError, match=rule):
        Watch(nn.Linear(2, 2), path=tmp_path, append=True, **given)
    assert (tmp_path / "rank-0.watch").read_bytes() == before
