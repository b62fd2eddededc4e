"""fastseed.checkpoint.save and load: the file is the old one or the new one, and never a part."""

from __future__ import annotations

import os
import random
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest
from helpers.jobs import draws, everything, start
from helpers.support import run_script, scramble, snapshot

import fastseed
from fastseed.checkpoint import api as checkpoint
from fastseed.checkpoint import file_io, format


@pytest.fixture
def job():
    return start(rank=0, world_size=1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "state.fastseed"


@pytest.fixture(autouse=True)
def folder(path):
    path.parent.mkdir()
    return path.parent


# ---------------------------------------------------------------- the way back


def test_a_file_goes_on_where_it_was_saved(job, path):
    assert checkpoint.save(path) is None
    expected = draws(job), draws(job)
    scramble(), draws(job)
    for _ in range(2):
        assert checkpoint.load(path) is None
        assert (draws(job), draws(job)) == expected
    assert os.listdir(path.parent) == [path.name]


def test_coordinates_alone_begin_the_scope(job, path):
    checkpoint.save(path, rng=False)
    assert path.stat().st_size == 120
    fastseed.reseed(1, 7, 9)
    expected = draws(job)
    fastseed.init(7, rank=0, world_size=1)
    for name, generator in job.items():
        fastseed.register_generator(generator, name=name)
    checkpoint.load(path)
    assert draws(job) == expected
    assert fastseed.get_master_seed() == 42


def test_before_the_first_reseed(path):
    fastseed.init(42, rank=0, world_size=1)
    before = snapshot()
    checkpoint.save(path)
    scramble()
    checkpoint.load(path)
    assert snapshot() == before and fastseed.seeder.api._seeder.scope is None


def test_size_of_a_file(path):
    """7.6 KB of states in it, and 24 bytes of coordinates at byte 40."""
    fastseed.init(0x1122334455667788, rank=0, world_size=1)
    fastseed.reseed(0xABCDE, 0x99AABBCC, 0x0102030405060708)
    checkpoint.save(path)
    data = path.read_bytes()
    assert len(data) == 7734 and 24 + 2508 + 2524 + 2520 <= 7600
    assert data[40:64].hex() == "88776655443322110807060504030201ccbbaa99debc0a00"


def test_before_init(path, monkeypatch):
    monkeypatch.setattr(fastseed.seeder.api, "_seeder", None)
    for call in (checkpoint.save, checkpoint.load):
        with pytest.raises(RuntimeError, match=r"fastseed.checkpoint.\w+: call fastseed.init"):
            call(path)


@pytest.mark.parametrize("kind", [str, os.fsencode, lambda p: p, os.path.relpath])
def test_paths_of_every_kind(job, path, kind):
    checkpoint.save(kind(path))
    checkpoint.load(kind(path))


@pytest.mark.parametrize(
    ("odd", "error"), [(3, TypeError), (None, TypeError), ("", ValueError), ("a\0b", ValueError)]
)
def test_what_is_no_path_is_refused(job, odd, error):
    before = everything(job)
    for call in (checkpoint.save, checkpoint.load):
        with pytest.raises(error, match=rf"fastseed.checkpoint.{call.__name__}: path must "):
            call(odd)
    assert everything(job) == before


# ---------------------------------------------------------------- crashes


def test_a_killed_writer_leaves_the_old_file_or_the_new_one(folder):
    done = run_script("kill_writers.py", folder, "200", timeout=100)
    old, new, neither = done["found"]
    assert neither == 0 and old + new == 200
    assert min(old, new) >= 20, "the writers were killed at too few places"
    assert done["left"] >= 20 and done["after"] == ["state"]


def crash_at(step, path):
    """In a child that ends without clean-up at its ``step``-th call of the system; whether so."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) == 9
    calls = 0

    def wrapped(function):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == step:
                os._exit(9)
            return function(*args, **kwargs)

        return call

    file_io._CHUNK = 251
    for name in ("open", "write", "fsync", "replace", "fchmod", "fchown"):
        setattr(os, name, wrapped(getattr(os, name)))
    try:
        checkpoint.save(path)
    finally:
        os._exit(0)


def test_a_crash_between_any_two_calls_leaves_the_old_file_or_the_new_one(job, path):
    checkpoint.save(path)
    old, seen, step = path.read_bytes(), set(), 0
    fastseed.reseed(1, 8)
    while crash_at(step := step + 1, path):
        seen.add(path.read_bytes() == old)
        format.decode(path.read_bytes())
        if path.read_bytes() != old:
            path.write_bytes(old)
    assert seen == {True, False} and step > 40
    checkpoint.save(path)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("name", ["write", "fsync", "replace", "fchmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(job, path, monkeypatch, name, error):
    checkpoint.save(path)
    old = path.read_bytes()

    def fails(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fails)
        with pytest.raises(type(error)):
            checkpoint.save(path)
    assert path.read_bytes() == old and os.listdir(path.parent) == [path.name]


def test_file_and_folder_are_flushed(job, path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.readlink(f"/proc/self/fd/{fd}")))
    checkpoint.save(path)
    temporary, where = flushed
    assert os.path.basename(temporary).startswith(".fastseed-")
    assert where == str(path.parent) == os.path.dirname(temporary)


# ---------------------------------------------------------------- temporary files


def left_behind(path, name=None, content=b"fastseed\1"):
    """What a writer of ``path`` that was killed leaves."""
    name = name or f"{prefix(path)}0123456789abcdef.tmp"
    (path.parent / name).write_bytes(content)
    return path.parent / name


def prefix(path):
    seen = []
    real = os.replace
    try:
        os.replace = lambda a, b: seen.append(a) or real(a, b)
        file_io.replace("test", str(path), b"fastseed")
    finally:
        os.replace = real
    path.unlink()
    return os.path.basename(seen[0])[:-20]


@pytest.mark.parametrize("content", [b"", b"fast", b"fastseed and more"])
def test_what_dead_writers_left_is_removed(job, path, content):
    left = left_behind(path, content=content)
    checkpoint.save(path)
    assert not left.exists() and path.exists()


def test_what_is_not_surely_left_by_a_writer_of_this_file_stays(job, path):
    ours = prefix(path)
    other = prefix(path.parent / "other")
    kept = [
        left_behind(path, content=b"somebody else's"),
        left_behind(path, name=f"{ours}0123456789abcde.tmp"),
        left_behind(path, name=f"{ours}0123456789abcdeg.tmp"),
        left_behind(path, name=f"{ours}0123456789abcde0.tmp.tmp"),
        left_behind(path, name=f"{other}0123456789abcdef.tmp"),
    ]
    linked = path.parent / f"{ours}aaaaaaaaaaaaaaaa.tmp"
    linked.symlink_to(left_behind(path, name="target"))
    (path.parent / f"{ours}bbbbbbbbbbbbbbbb.tmp").mkdir()
    os.mkfifo(path.parent / f"{ours}cccccccccccccccc.tmp")
    there = set(os.listdir(path.parent))
    checkpoint.save(path)
    assert all(p.exists() for p in kept) and linked.exists()
    assert set(os.listdir(path.parent)) == there | {path.name}


def test_a_writer_that_lives_keeps_its_temporary_file(job, path, monkeypatch):
    """Two processes save to one path at a time: both succeed."""
    go, done = threading.Event(), []
    real = os.replace

    def slow(a, b):
        if threading.current_thread() is not threading.main_thread():
            go.set()
            time.sleep(0.3)
        return real(a, b)

    monkeypatch.setattr(os, "replace", slow)
    writer = threading.Thread(target=lambda: done.append(checkpoint.save(path)))
    writer.start()
    assert go.wait(10)
    checkpoint.save(path)
    assert len(os.listdir(path.parent)) == 2
    writer.join(10)
    assert done == [None] and os.listdir(path.parent) == [path.name]


# ---------------------------------------------------------------- what is there already


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_permissions_are_kept(job, path, mode):
    checkpoint.save(path)
    path.chmod(mode)
    checkpoint.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_group_is_kept_by_a_member_who_is_not_the_owner():
    with tempfile.TemporaryDirectory() as open_to_all:  # tmp_path is not
        os.chmod(open_to_all, 0o777)
        path = Path(open_to_all, "state")
        path.write_bytes(b"old")
        os.chown(path, 65530, 65531)
        path.chmod(0o660)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([65531])
                os.setgid(65532)
                os.setuid(65532)
                file_io.replace("test", str(path), b"fastseed")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        found = path.stat()
        assert path.read_bytes() == b"fastseed"
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65532, 65531, 0o660)


def test_a_new_file_follows_the_umask(job, path):
    before = os.umask(0o027)
    try:
        checkpoint.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("there", [True, False])
def test_links_stay_and_what_they_lead_to_is_replaced(job, path, tmp_path, there):
    target = tmp_path / "elsewhere" / "real"
    target.parent.mkdir()
    if there:
        target.write_bytes(b"old")
    path.symlink_to(target)
    checkpoint.save(path)
    assert path.is_symlink() and not target.is_symlink()
    format.decode(target.read_bytes())
    checkpoint.load(path)
    assert os.listdir(target.parent) == ["real"]


def test_long_names(job, path):
    long = path.parent / ("n" * 255)
    checkpoint.save(long)
    checkpoint.load(long)


def test_names_that_are_too_long_are_refused(job, path):
    checkpoint.save(path)
    old = path.read_bytes()
    fastseed.register_generator(random.Random(1), name="n" * 70_000)
    with pytest.raises(ValueError, match=r"names must have at most 65535 bytes, got 70000: 'nnn"):
        checkpoint.save(path)
    assert path.read_bytes() == old


def test_what_is_no_file_is_refused(job, path):
    pipe, loop, shut = path.parent / "pipe", path.parent / "loop", path.parent / "sub"
    os.mkfifo(pipe), loop.symlink_to(loop), shut.mkdir()
    before, there = everything(job), sorted(os.listdir(path.parent))
    for call in (checkpoint.save, checkpoint.load):
        start = rf"fastseed.checkpoint.{call.__name__}: path must "
        with pytest.raises(ValueError, match=start + "be a file, got .*, which is a folder"):
            call(shut)
        for odd in (pipe, "/dev/null"):
            with pytest.raises(ValueError, match=start + "be a file, got .*, which is no regular"):
                call(odd)
        with pytest.raises(OSError, match="symbolic links"):
            call(loop)
    with pytest.raises(FileNotFoundError, match="save: path must be in a folder that exists"):
        checkpoint.save(path.parent / "none" / "state")
    with pytest.raises(FileNotFoundError, match="load: path must exist"):
        checkpoint.load(path)
    assert everything(job) == before
    assert sorted(os.listdir(path.parent)) == there


def test_saving_changes_no_generator(job, path):
    before = everything(job)
    checkpoint.save(path)
    assert everything(job) == before


# ---------------------------------------------------------------- several ranks


def test_a_file_for_each_rank(path):
    pattern = path.parent / "state-{rank:03d}.{rank}"
    expected = {}
    for rank in (0, 1, 11):
        fastseed.init(42, rank=rank, world_size=12)
        fastseed.reseed(1, 3)
        [random.random() for _ in range(rank)]
        checkpoint.save(pattern)
        expected[rank] = snapshot()
    assert sorted(os.listdir(path.parent)) == ["state-000.0", "state-001.1", "state-011.11"]
    for rank, state in expected.items():
        fastseed.init(7, rank=rank, world_size=12)
        checkpoint.load(pattern)
        assert snapshot() == state


def save_ranks(pattern, world_size, epoch):
    states = []
    for rank in range(world_size):
        fastseed.init(42, rank=rank, world_size=world_size)
        fastseed.reseed(1, epoch)
        random.random(), random.gauss(0, 1)
        checkpoint.save(pattern)
        states.append(snapshot())
    return states


def test_files_of_ranks_under_another_world_size(path, caplog):
    pattern = path.parent / "{rank}"
    save_ranks(pattern, 5, epoch=2)  # of an earlier, larger job: stale from here on
    states = save_ranks(pattern, 3, epoch=4)
    fresh = []
    for rank in range(5):
        fastseed.init(42, rank=rank, world_size=5)
        caplog.clear()
        checkpoint.load(pattern)
        assert tuple(fastseed.seeder.api._seeder.scope) == (1, 4, 0)
        if rank < 3:
            assert snapshot() == states[rank] and not caplog.records
            continue
        assert f"other ranks' and this is rank {rank}" in caplog.text
        fresh.append(snapshot())
        fastseed.reseed(1, 4)
        assert snapshot() == fresh[-1]
    for generator in zip(*states, *fresh, strict=True):
        assert len({repr(state) for state in generator}) == 5
    for rank in range(2):
        fastseed.init(42, rank=rank, world_size=2)
        caplog.clear()
        checkpoint.load(pattern)
        assert snapshot() == states[rank]
        assert ("the exact states of rank 2 are dropped" in caplog.text) == (rank == 0)


def test_files_of_two_saves_are_refused(path):
    pattern = path.parent / "{rank}"
    save_ranks(pattern, 2, epoch=2)
    fastseed.init(42, rank=0, world_size=2)
    fastseed.reseed(1, 3)
    checkpoint.save(pattern)
    fastseed.init(42, rank=1, world_size=2)
    before = snapshot()
    with pytest.raises(ValueError, match=r"path must be of one save: .* got epoch 3 in .*/0 and 2"):
        checkpoint.load(pattern)
    assert snapshot() == before
    (path.parent / "0").unlink()  # which another machine's disk may have
    checkpoint.load(pattern)
    assert tuple(fastseed.seeder.api._seeder.scope) == (1, 2, 0)


def test_one_file_of_several_ranks_needs_a_process_group(path):
    fastseed.init(42, rank=0, world_size=2)
    with pytest.raises(RuntimeError, match=r"2 ranks must have a process group .* put \{rank\} "):
        checkpoint.save(path)
    assert not path.exists()
