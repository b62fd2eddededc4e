"""fastseed.checkpoint.save and load: a file has its old content or the new content."""

import os
import random
import stat

import pytest
from helpers.jobs import draws, everything, start
from helpers.support import scramble, snapshot

import fastseed
from fastseed import checkpoint
from fastseed.checkpoint import format as file_format


@pytest.fixture
def job():
    return start(rank=0, world_size=1)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "state.fastseed"


def test_loading_resumes_exactly(job, path):
    before = everything(job)
    assert checkpoint.save(path, rng=True) is None
    assert everything(job) == before
    expected = draws(job), draws(job)
    scramble(), draws(job)
    for _ in range(2):
        assert checkpoint.load(path) is None
        assert (draws(job), draws(job)) == expected
    assert os.listdir(path.parent) == [path.name]


def test_without_exact_states_the_scope_restarts(job, path):
    checkpoint.save(path, rng=False)
    assert path.stat().st_size < 2000
    fastseed.reseed(1, 7, 9)
    expected = draws(job)
    fastseed.init(7, rank=0, world_size=1)
    for name, generator in job.items():
        fastseed.register_generator(generator, name=name)
    checkpoint.load(path)
    assert draws(job) == expected
    assert fastseed.get_master_seed() == 42


def test_before_init(path):
    for call in (checkpoint.save, checkpoint.load):
        with pytest.raises(RuntimeError, match=r"fastseed.checkpoint.\w+: call fastseed.init"):
            call(path)


def crash_at(step, path):
    """Save in a child that ends without clean-up at its ``step``-th system call; return whether."""
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

    for name in ("open", "fdopen", "chmod", "fsync", "replace", "close"):
        setattr(os, name, wrapped(getattr(os, name)))
    try:
        checkpoint.save(path, rng=True)
    finally:
        os._exit(0)


def test_a_crash_between_any_two_calls_leaves_the_old_file_or_the_new_one(job, path):
    checkpoint.save(path, rng=True)
    old, seen, step = path.read_bytes(), set(), 0
    fastseed.reseed(1, 8)
    while crash_at(step := step + 1, path):
        seen.add(path.read_bytes() == old)
        file_format.decode(path.read_bytes())
        path.write_bytes(old)
    assert seen == {True, False} and step > 5


@pytest.mark.parametrize("name", ["fsync", "replace", "chmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(job, path, monkeypatch, name, error):
    checkpoint.save(path, rng=True)
    old = path.read_bytes()

    def fails(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fails)
        with pytest.raises(type(error)):
            checkpoint.save(path, rng=True)
    assert path.read_bytes() == old and os.listdir(path.parent) == [path.name]


def test_file_and_folder_are_flushed(job, path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.readlink(f"/proc/self/fd/{fd}")))
    checkpoint.save(path, rng=True)
    temporary, where = flushed
    assert os.path.basename(temporary).startswith(f".{path.name}.")
    assert where == str(path.parent) == os.path.dirname(temporary)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_permissions_are_kept(job, path, mode):
    checkpoint.save(path, rng=True)
    path.chmod(mode)
    checkpoint.save(path, rng=True)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_follows_the_umask(job, path):
    before = os.umask(0o027)
    try:
        checkpoint.save(path, rng=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed(job, path, tmp_path, exists):
    target = tmp_path / "elsewhere" / "real"
    target.parent.mkdir()
    if exists:
        target.write_bytes(b"old")
    path.symlink_to(target)
    checkpoint.save(path, rng=True)
    assert path.is_symlink() and not target.is_symlink()
    file_format.decode(target.read_bytes())
    checkpoint.load(path)
    assert os.listdir(target.parent) == ["real"]


def test_only_regular_files_are_accepted(job, path):
    pipe, folder = path.parent / "pipe", path.parent / "sub"
    os.mkfifo(pipe), folder.mkdir()
    before, there = everything(job), sorted(os.listdir(path.parent))
    for odd in (folder, pipe, "/dev/null"):
        with pytest.raises(ValueError, match=r"checkpoint.load: path must be a regular file, got "):
            checkpoint.load(odd)
    with pytest.raises(FileNotFoundError, match="save: path must be in a folder that exists"):
        checkpoint.save(path.parent / "none" / "state", rng=True)
    with pytest.raises(FileNotFoundError, match=path.name):
        checkpoint.load(path)
    assert everything(job) == before
    assert sorted(os.listdir(path.parent)) == there


def test_a_file_for_each_rank(path):
    pattern = path.parent / "state-{rank:03d}.{rank}"
    expected = {}
    for rank in (0, 1, 11):
        fastseed.init(42, rank=rank, world_size=12)
        fastseed.reseed(1, 3)
        [random.random() for _ in range(rank)]
        checkpoint.save(pattern, rng=True)
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
        checkpoint.save(pattern, rng=True)
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
        assert tuple(fastseed.derivation.context.seeder.scope) == (1, 4, 0)
        if rank < 3:
            assert snapshot() == states[rank] and not caplog.records
            continue
        assert f"rank {rank}" in caplog.text
        fresh.append(snapshot())
        fastseed.reseed(1, 4)
        assert snapshot() == fresh[-1]
    for generator in zip(*states, *fresh, strict=True):
        assert len({repr(state) for state in generator}) == 5
    for rank in range(2):
        fastseed.init(42, rank=rank, world_size=2)
        checkpoint.load(pattern)
        assert snapshot() == states[rank]


def test_files_of_two_saves_are_refused(path):
    pattern = path.parent / "{rank}"
    save_ranks(pattern, 2, epoch=2)
    fastseed.init(42, rank=0, world_size=2)
    fastseed.reseed(1, 3)
    checkpoint.save(pattern, rng=True)
    fastseed.init(42, rank=1, world_size=2)
    before = snapshot()
    with pytest.raises(
        ValueError,
        match=r"parts are not of one save: epoch is 3 in .*/0 and 2 in .*; put the step into",
    ):
        checkpoint.load(pattern)
    assert snapshot() == before
    (path.parent / "0").unlink()  # which may lie on the disk of another machine
    checkpoint.load(pattern)
    assert tuple(fastseed.derivation.context.seeder.scope) == (1, 2, 0)


def test_the_path_of_several_ranks_must_have_the_rank_in_it(path):
    fastseed.init(42, rank=0, world_size=2)
    rule = r"checkpoint\.save: path must be with \{rank\} in it in a job of 2 ranks, as 'rng-"
    with pytest.raises(ValueError, match=rule):
        checkpoint.save(path, rng=True)
    assert not path.exists()
