"""Files: what is no regular file is refused at once; writes are whole or not there."""

import fcntl
import os
import socket

import pytest

from fastseed._utils import atomic_file, regular_file, strict_json


@pytest.fixture(params=["pipe", "socket", "device", "folder", "giant"])
def no_file(request, tmp_path):
    path = tmp_path / "it"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        held = socket.socket(socket.AF_UNIX)
        held.bind(os.fspath(path))
        request.addfinalizer(held.close)
    elif request.param == "device":
        return "/dev/zero"
    elif request.param == "folder":
        path.mkdir()
    else:
        with open(path, "wb") as file:
            file.truncate(40 << 30)
    return path


def test_what_is_no_regular_file_is_refused_at_once(no_file):
    with pytest.raises(ValueError, match=r"^a (regular file|file whose bytes are on the disk)"):
        regular_file.open_file(no_file)
    with pytest.raises(ValueError, match=r"^a "):
        regular_file.read(no_file)


def test_files_are_opened_as_by_open(tmp_path):
    path = tmp_path / "new"
    with pytest.raises(FileNotFoundError):
        regular_file.open_file(path)
    path.write_bytes(b"abc")
    assert regular_file.read(path) == regular_file.read(path, 3) == b"abc"
    with pytest.raises(ValueError, match=r"^a file of at most 2 bytes"):
        regular_file.read(path, 2)
    with pytest.raises(ValueError, match=r"^a file of at most 9 bytes"):
        regular_file.read("/proc/self/environ", 9)  # whose size is 0
    with pytest.raises(OSError, match="/proc/self/mem"):
        regular_file.read("/proc/self/mem")


def test_a_pipe_without_a_reader_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        atomic_file.replace(tmp_path / "pipe", b"abc")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error_with_the_name_of_the_file(monkeypatch, tmp_path):
    """Both for a device that is written to directly and for a file beside which it is full."""
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        atomic_file.replace("/dev/full", b"abc")
    path = tmp_path / "file"
    path.write_bytes(b"old")
    opened = os.open
    monkeypatch.setattr(
        os, "open", lambda name, flags, *mode: opened("/dev/full", os.O_WRONLY, *mode)
    )
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        atomic_file.replace(path, b"new")
    assert path.read_bytes() == b"old"


def test_the_file_of_a_killed_write_goes_with_the_next_one(monkeypatch, tmp_path):
    path, left = tmp_path / "state", tmp_path / ".state.tmp"
    left.write_bytes(b"a longer part of what a killed process wrote")
    with open(left) as written:  # as if that process were alive
        fcntl.flock(written, fcntl.LOCK_EX)
        atomic_file.replace(path, b"first")
        assert sorted(tmp_path.iterdir()) == [left, path] and path.read_bytes() == b"first"
    rename = os.replace

    def rename_while_locked(source, target):
        with open(source) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        rename(source, target)

    monkeypatch.setattr(os, "replace", rename_while_locked)
    atomic_file.replace(path, b"second")
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"second"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[NaN]", "without NaN"),
        ("-Infinity", "without -Infinity"),
        ("1e999", "without 1e999"),
        ('{"a": -1e999}', "without -1e999"),
        ('[{"a": 1, "a": 1}]', "without duplicate keys"),
        ("[1", "a whole JSON document (Expecting"),
        (b"\xff", "a whole JSON document ("),
        ("[" * 100_000, "nested less deeply"),
    ],
)
def test_what_is_refused(text, rule):
    with pytest.raises(strict_json.Invalid) as caught:
        strict_json.parse(text)
    assert str(caught.value).startswith(rule)


def test_what_is_read():
    assert strict_json.parse(b'{"a": [1.5, -1e308, null]}') == {"a": [1.5, -1e308, None]}
