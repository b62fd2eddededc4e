"""``fork_rng(name)``: torch's default generators on another stream, and back exactly."""

import threading

import numpy as np
import pytest
import torch
from helpers.support import holds_key, scramble, seeder, snapshot

import fastseed
from fastseed.seeder import fork_rng
from fastseed.seeder.process_lock import process

AT = {"task": 1, "epoch": 7, "step": 3}


@pytest.fixture
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(*AT.values())
    yield fastseed.derivation.context.seeder
    assert process.blocks == ()


def draw(n=2):
    return torch.rand(n).tolist()


def forked(name="a", n=2, **more):
    with fastseed.fork_rng(name, **more):
        return draw(n)


def enter(s, *arguments, **more):
    with s.fork_rng(*arguments, **more):
        pass


@pytest.mark.parametrize("index", [None, 5])
def test_generators_are_restored_exactly(job, index):
    scramble()  # in the middle of a state, with Gaussians cached
    before = snapshot()
    with fastseed.fork_rng("a", index=index):
        torch.randn(7), torch.randn((), dtype=torch.float64)
        assert snapshot()[2] != before[2]
        assert snapshot()[:2] == before[:2]  # Python's and NumPy's do not change
    assert snapshot() == before


def test_generators_are_restored_after_an_error(job):
    before = snapshot()
    with pytest.raises(KeyError), fastseed.fork_rng("a"), fastseed.fork_rng("b", index=1):
        draw()
        raise KeyError
    assert snapshot() == before


@pytest.mark.parametrize("index", [None, 0, 5, fork_rng.MAX_INDEX])
def test_a_block_starts_with_the_key_of_its_stream(job, index):
    member = 0 if index is None else index + 1 << 8
    with fastseed.fork_rng("a", index=index):
        assert holds_key(torch.default_generator, job.derive_key("a/torch.cpu", **AT, index=member))


def test_numbered_blocks_repeat_whenever_they_are_entered(job):
    layers = [forked(index=i) for i in range(4)]
    assert len({tuple(values) for values in layers}) == 4
    draw()
    assert [forked(index=i) for i in reversed(range(4))] == layers[::-1]
    assert forked() not in layers and forked("b", index=0) not in layers
    assert [forked(index=np.int64(i)) for i in range(4)] == layers


def test_blocks_nest(job):
    a, b, base = forked("a", 4), forked("b", 4), draw(4)
    job.move(*AT.values())
    found = {"base": draw(), "a": [], "b": []}
    block = fastseed.fork_rng("a", index=3)
    with fastseed.fork_rng("a"):
        found["a"] += draw()
        with fastseed.fork_rng("b"):
            found["b"] += draw()
            with block, block:  # inside itself
                inner = draw()
            found["b"] += draw()
        found["a"] += draw()
    found["base"] += draw()
    assert found == {"base": base, "a": a, "b": b} and inner == forked(index=3)


def test_a_decorator_can_be_made_before_init():
    @fastseed.fork_rng("a")
    def once():
        return draw()

    @fastseed.fork_rng("a", index=2)
    def repeats(depth=0):
        return repeats(depth - 1) if depth else draw()

    with pytest.raises(RuntimeError, match=r"fastseed\.fork_rng: call fastseed.init"):
        once()
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    assert once() == (fastseed.reseed(1), forked())[1]
    with pytest.raises(RuntimeError, match="'a' must be entered once in a scope"):
        once()
    assert repeats() == repeats(3) == forked(index=2)


def test_functions_that_return_before_they_draw_are_not_decorated():
    def generator():
        yield

    async def coroutine():
        pass

    async def both():
        yield

    for function in (generator, coroutine, both):
        with pytest.raises(TypeError, match=r"fork_rng: .* open the block in a generator or"):
            fastseed.fork_rng("a")(function)


@pytest.mark.parametrize("indices", [(None, 1, 2), (1, 1, 2), (1, 2, 1)])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1), (1, 2, 0)])
def test_blocks_left_out_of_order_are_an_error_and_restore_the_generators(job, indices, order):
    base = snapshot()
    blocks = [fastseed.fork_rng("a", index=index) for index in indices]
    for block in blocks:
        block.__enter__()
        draw()
    errors = []
    for i in order:
        try:
            blocks[i].__exit__()
        except RuntimeError as error:
            errors.append(str(error))
    assert snapshot() == base and process.blocks == ()
    assert len(errors) == 1 and "left in the reverse order of entering" in errors[0]
    fastseed.reseed(1, 9)  # no block is left behind


def test_blocks_of_two_threads_that_overlap_are_an_error(job):
    before, refused = snapshot(), []

    def other():
        try:
            forked("b")
        except RuntimeError as error:
            refused.append(str(error))

    with fastseed.fork_rng("a"):
        inside = snapshot()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(30)
        assert snapshot() == inside
    assert snapshot() == before
    (message,) = refused
    assert (
        "while another thread is inside fork_rng('a')" in message and "torch.Generator" in message
    )
    assert forked("b") == (job.move(*AT.values()), forked("b"))[1]


def test_invalid_states_are_refused(job):
    before = snapshot()
    with pytest.raises(RuntimeError, match=r"fastseed\.fork_rng: call fastseed.reseed"):
        enter(seeder(), "a")
    job.move(*AT.values())
    assert snapshot() == before
    held = fastseed.state_dict()
    refused = {
        "reseed": lambda: fastseed.reseed(1, 9),
        "state_dict": lambda: fastseed.state_dict(rng=True),
        "load_state_dict": lambda: fastseed.load_state_dict(held),
    }
    with fastseed.fork_rng("a"):
        inside = snapshot()
        for function, call in refused.items():
            with pytest.raises(
                RuntimeError, match=rf"{function}: must not be called inside a fork"
            ):
                call()
        assert snapshot() == inside and fastseed.state_dict() == held
    assert snapshot() == before


class Forking(torch.utils.data.Dataset):
    """A dataset that enters a block for each sample."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return forked("a", index=index)


def test_blocks_are_refused_in_dataloader_workers(job):
    loader = torch.utils.data.DataLoader(
        Forking(), num_workers=1, multiprocessing_context="fork", timeout=60
    )
    with pytest.raises(RuntimeError, match=r"fork_rng: must not be called in a DataLoader worker"):
        list(loader)
    assert len(list(torch.utils.data.DataLoader(Forking()))) == 2


def test_the_streams_of_blocks_are_no_names_of_generators(job):
    with pytest.raises(ValueError, match=r"does not use itself.*a/torch\.cpu"):
        job.register_generator(print, name="a/torch.cpu")


HERE = {"dp": (1, 2), "tp": (1, 2)}


def test_a_named_stream_is_distinct_over_the_given_dimensions():
    rules = {"known": ("tp",), "numpy": ("dp",)}
    s = seeder(rank=3, world_size=4, mesh=HERE, distinct_over=rules)
    s.reseed(1)
    for name, more, rank_field in (
        ("own", {}, 3),
        ("known", {}, 1),
        ("given", {"distinct_over": ("dp",)}, 1),
    ):
        with s.fork_rng(name, **more):
            key = s.derive_key(f"{name}/torch.cpu", task=1, rank=rank_field)
            assert holds_key(torch.default_generator, key)
    for name, given, message in (
        ("known", ("dp",), "distinct_over must be consistent with"),
        ("new", ("pp",), "distinct_over must be a tuple of dimensions of the mesh"),
    ):
        with pytest.raises(ValueError, match=message):
            enter(s, name, distinct_over=given)
    assert torch.initial_seed() == s.derive_seed("torch.cpu", task=1)
