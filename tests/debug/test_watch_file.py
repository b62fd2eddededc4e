"""Files of Watch: incomplete files are read, damaged files are refused."""

from __future__ import annotations

import itertools
import json
import signal
import struct
import subprocess
import sys
import time
import zlib

import pytest
import torch
from helpers.support import clean_environment
from torch import nn

from fastseed.debug import Watch, bisect
from fastseed.debug.tree_digest import Leaf, digest
from fastseed.debug.watch_file import MAGIC, Entry, Recording, Writer, record

HEADER = {"rank": 0, "world_size": 1, "every": 1, "groups": ["parameter"], "torch": "2.13.0"}
ROW = ["parameter", "w", "float32", [2]]


def step_of(step, *values, table=0, start=0):
    digests = b"".join(value.to_bytes(16, "little") for value in values)
    return record(b"step", struct.pack("<qBI", step, start, table) + digests)


def head(**more):
    return MAGIC + record(b"head", json.dumps({**HEADER, **more}).encode())


def table(*rows):
    return record(b"tabl", json.dumps(rows or [ROW]).encode())


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
    """Byte by byte, as in docs/spec/digests.md."""
    model = nn.Linear(2, 1)
    with Watch(
        model,
        path=tmp_path,
        step=7,
        every=7,
        groups=("buffer", "gradient", "optimizer", "parameter"),
    ) as watch:
        watch.record()
    data = (tmp_path / "rank-0.watch").read_bytes()
    assert data[:16] == b"fastseed watch 1"
    at, found = 16, []
    while at < len(data):
        kind, length, check, check_head = struct.unpack_from("<4sIII", data, at)
        payload = data[at + 16 : at + 16 + length]
        assert zlib.crc32(payload) == check and zlib.crc32(data[at : at + 12]) == check_head
        found.append((kind, payload))
        at += 16 + length
    assert [kind for kind, _ in found] == [b"head", b"tabl", b"step", b"step"]
    header = json.loads(found[0][1])
    assert (header["rank"], header["world_size"], header["every"]) == (0, 1, 7)
    assert header["groups"] == ["buffer", "gradient", "parameter"]
    assert json.loads(found[1][1]) == [
        ["parameter", "weight", "float32", [1, 2]],
        ["parameter", "bias", "float32", [1]],
    ]
    expected = [digest(p).table[""].value for p in (model.weight, model.bias)]
    for (_, payload), step, start in zip(found[2:], (6, 7), (1, 0), strict=True):
        assert struct.unpack_from("<qBI", payload) == (step, start, 0)
        words = payload[13:]
        assert [int.from_bytes(words[i : i + 16], "little") for i in (0, 16)] == expected
        assert len(words) == 32


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
        elif size < 16:
            with pytest.raises(ValueError, match="must be a file of fastseed"):
                Recording(cut)
    cut.write_bytes(data[: ends[1] + 5])
    assert "the last record of b is incomplete" in bisect(path, cut).notes


def test_any_damaged_byte_is_refused(recorded, tmp_path):
    path, _ = recorded
    data, damaged = path.read_bytes(), tmp_path / "damaged"
    for at in range(len(data)):
        damaged.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r"debug.bisect: .*(is damaged at byte|must be a)"):
            Recording(damaged)


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


BAD = {
    "nothing": b"",
    "text": b"step,loss\n0,1.0\n" * 9,
    "another version": b"fastseed watch 2" + head()[16:],
    "no header": MAGIC,
    "no header but a table": MAGIC + table(),
    "a header of another type": MAGIC + record(b"head", b"[1]"),
    "a header without a rank": MAGIC + record(b"head", b'{"every": 1, "world_size": 1}'),
    "a header with a list as rank": head(rank=[1]),
    "a header with a number as groups": head(groups=7),
    "no JSON": head() + record(b"tabl", b"\xff{"),
    "deep JSON": head() + record(b"tabl", b"[" * 100_000),
    "a short row": head() + record(b"tabl", b'[["parameter", "w"]]'),
    "a row with no shape": head() + table(["parameter", "w", "float32", 2]),
    "a step without a table": head() + step_of(0, 1),
    "a short step": head() + table() + step_of(0),
    "a long step": head() + table() + step_of(0, 1, 2),
    "an empty step": head() + table() + record(b"step", b""),
    "another kind": head() + record(b"more", b""),
    "a payload without end": head() + struct.pack("<4sIII", b"tabl", 2**32 - 1, 0, 0),
}


@pytest.mark.parametrize("name", BAD)
def test_other_files_are_refused(tmp_path, name):
    path = tmp_path / "rank-0.watch"
    path.write_bytes(BAD[name])
    with pytest.raises(
        ValueError, match=r"^fastseed.debug.bisect: (path must be|'.*rank-0.watch' is damaged)"
    ):
        bisect(path, path)


def test_good_files_of_the_same_kind_are_taken(tmp_path):
    """The bad files above are damaged copies of this one."""
    path = tmp_path / "rank-0.watch"
    path.write_bytes(head() + table() + step_of(0, 1) + step_of(2**62, 2**128 - 1))
    found = Recording(path)
    assert [found.values(s).by_name() for s in found.steps] == [
        {("parameter", "w"): Leaf(value, "float32", (2,))} for value in (1, 2**128 - 1)
    ]


def test_folders_and_steps_without_anything_in_common(tmp_path):
    for name, step in (("a", 0), ("b", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank-0.watch").write_bytes(head() + table() + step_of(step, 1))
    with pytest.raises(ValueError, match="a and b must have a step in common"):
        bisect(tmp_path / "a", tmp_path / "b")
    rule = r"must be a folder with recordings of fastseed.debug.Watch, or one of its files"
    (tmp_path / "rank-x.watch").touch()
    with pytest.raises(ValueError, match=rf"^fastseed.debug.bisect: a {rule}, got"):
        bisect(tmp_path, tmp_path / "b")
    with pytest.raises(ValueError, match=rf"^fastseed.debug.bisect: b {rule}, that exists, got"):
        bisect(tmp_path / "a", tmp_path / "c")
    for wrong in (5, None, b"a"):
        with pytest.raises(TypeError, match=r"^fastseed.debug.bisect: b must be a path, got"):
            bisect(tmp_path / "a", wrong)


def test_records_of_any_claimed_size_are_refused(tmp_path):
    path = tmp_path / "rank-0.watch"
    path.write_bytes(head() + struct.pack("<4sII", b"tabl", 1 << 29, 0))
    start = path.stat().st_size - 12
    check = struct.pack("<I", zlib.crc32(path.read_bytes()[start:]))
    with open(path, "ab") as file:
        file.write(check)
        file.truncate(1 << 30)
    with pytest.raises(ValueError, match=r"damaged at byte .*: a record has 536870912 bytes"):
        bisect(path, path)


@pytest.mark.parametrize("content", [b"garbage", None])
def test_kept_tensors_of_another_kind_are_refused(tmp_path, content):
    for value, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        recorded = head() + table() + step_of(0, value)
        (tmp_path / name / "rank-0.watch").write_bytes(recorded)
        kept = tmp_path / name / "rank-0-step-0.pt"
        torch.save({"parameter": {"w": "text"}}, kept)
        if content is not None:
            kept.write_bytes(content)
    rule = (
        r"('.*rank-0-step-0.pt' must be a file of Watch|'w' in '.*' must be a tensor, got 'text')"
    )
    with pytest.raises((TypeError, ValueError), match=rf"^fastseed.debug.bisect: {rule}"):
        bisect(tmp_path / "a", tmp_path / "b")


def test_the_folder_of_a_run_is_its_recording(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "watch").mkdir(parents=True)
        (tmp_path / name / "watch" / "rank-0.watch").write_bytes(head() + table() + step_of(0, 1))
    found = bisect(tmp_path / "a", tmp_path / "b" / "watch")
    assert found.equal and found.compared == 1


def test_tables_are_written_when_they_change(tmp_path):
    path = tmp_path / "rank-0.watch"
    writer = Writer(path, HEADER, append=False)
    one, other = (Entry("parameter", "w", "float32", (n,)) for n in (1, 2))
    for step, entry in enumerate([one, other, one, other, other]):
        writer.step(step, {entry: step}, False)
    writer.close()
    writer.close()
    found = Recording(path)
    assert found.tables == [(one,), (other,)]
    assert [table for *_, table in found.steps.values()] == [0, 1, 0, 1, 1]


@pytest.mark.parametrize("how", ["error", "short write"])
def test_a_full_disk_leaves_whole_records(tmp_path, how):
    path = tmp_path / "rank-0.watch"
    writer = Writer(path, HEADER, append=False)
    entry = Entry("parameter", "w", "float32", (1,))
    writer.step(0, {entry: 1}, False)
    real = writer._file

    class Full:
        truncate, seek, close = real.truncate, real.seek, real.close

        def write(self, data):
            written = real.write(data[:10])
            if how == "error":
                raise OSError(28, "No space left on device")
            return written

    writer._file = Full()
    with pytest.raises(OSError, match="No space left"):
        writer.step(1, {entry: 2}, False)
    writer._file = real
    writer.step(2, {entry: 3}, False)
    writer.close()
    assert list(Recording(path).steps) == [0, 2]


ENDLESS = """
import sys, torch, fastseed
def no(*_): raise SystemExit("an accelerator was initialised")
torch.cuda._lazy_init = torch.xpu._lazy_init = no
watch = fastseed.debug.Watch(torch.nn.Linear(50, 50), path=sys.argv[1])
while True:
    watch.record()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_killed_process_leaves_a_file_that_is_read(tmp_path):
    path = tmp_path / "rank-0.watch"
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(tmp_path)], env=clean_environment(OMP_NUM_THREADS="1")
    )
    try:
        for _ in range(600):
            if path.exists() and path.stat().st_size > 20_000:
                break
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait(20)
    steps = list(Recording(path).steps)
    assert len(steps) > 100
    assert all(b - a == 1 for a, b in itertools.pairwise(steps))
