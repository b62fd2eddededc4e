"""A block without an index is entered once in a scope, wherever the second entry comes from."""

import asyncio
import contextlib
import threading
from traceback import clear_frames

import pytest
import torch
from helpers.support import restart
from helpers.worker_cases import options
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import fastseed
from fastseed.data import Loader, worker_init_fn
from fastseed.random import keyed

ONCE = r"fastseed\.{}: the block '{}' must be entered once in a scope, .*fastseed\.reseed.*index="
BLOCKS = {"random.keyed": keyed, "fork_rng": fastseed.fork_rng}


@pytest.fixture(autouse=True)
def _started():
    fastseed.init(42, rank=0, world_size=1)
    restart(3)


@pytest.fixture(params=BLOCKS)
def function(request):
    return request.param


def draw(function, name="x", **more):
    """What a block draws."""
    with BLOCKS[function](name, **more):
        return torch.rand(2).tolist()


def refused(function, name="x"):
    return pytest.raises(RuntimeError, match=ONCE.format(function, name))


def test_a_second_micro_batch(function):
    found = []
    with refused(function):
        for _ in range(2):
            found.append(draw(function))
    assert len(found) == 1
    assert draw(function, index=0) != draw(function, index=1)
    restart(4)
    assert draw(function) not in found


def test_a_second_layer(function):
    def layer():
        return draw(function, "dropout")

    layer()
    with refused(function, "dropout"):
        layer()
    assert draw(function, "dropout/1") and draw(function, "dropout", index=1)


def test_two_objects_and_one_twice(function):
    first, second = (BLOCKS[function]("x") for _ in range(2))
    with first, contextlib.suppress(RuntimeError):
        torch.rand(1)
    for again in (first, second):
        with refused(function):
            again.__enter__()
    with BLOCKS[function]("y"), refused(function, "y"), BLOCKS[function]("y"):
        pass


def test_a_reseed_that_fails_begins_no_scope(function):
    def broken(seed):
        raise ValueError("broken")

    draw(function)
    fastseed.register_generator(broken)
    with pytest.raises(fastseed.ReseedError, match="broken"):
        fastseed.reseed(4)
    with refused(function):
        draw(function)


def test_the_two_kinds_of_blocks_have_names_of_their_own():
    assert draw("random.keyed") != draw("fork_rng")


def test_another_thread(function):
    draw(function)
    errors = []

    def enter():
        try:
            draw(function)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(30)
    assert len(errors) == 1


def test_one_of_many_threads_enters():
    gate, entered = threading.Barrier(8), []

    def enter():
        gate.wait(30)
        with contextlib.suppress(RuntimeError):
            entered.append(draw("random.keyed"))

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(entered) == 1


def test_another_task(function):
    async def rollout(index, one="x"):
        with BLOCKS[function](one, index=index):
            drawn = torch.rand(2)
            await asyncio.sleep(0)
            return torch.cat([drawn, torch.rand(2)])

    async def at_once():
        return await asyncio.gather(*map(rollout, range(3)), return_exceptions=True)

    async def one_after_another():
        return [await rollout(index) for index in range(3)]

    for errors in (asyncio.run(at_once()) for _ in range(2)):
        assert any("another asyncio task" in str(error) for error in errors)
    assert len({found.sum().item() for found in asyncio.run(one_after_another())}) == 3
    with BLOCKS[function]("outside"), pytest.raises(RuntimeError, match="wait_for makes"):
        asyncio.run(rollout(0) if function == "fork_rng" else only_draw())


async def only_draw():
    torch.rand(1)


def test_fork_rng_in_a_keyed_block():
    with fastseed.fork_rng("x"), keyed("x"), pytest.raises(RuntimeError, match="a keyed block"):
        draw("fork_rng", index=0)
    with keyed("x", 0):
        thread = threading.Thread(target=draw, args=("fork_rng", "y"))
        thread.start()
        thread.join(30)
    with refused("fork_rng", "y"):
        draw("fork_rng", "y")


def test_a_retry_after_reseed_to_the_same_coordinates(function):
    first = draw(function)
    restart(3)
    assert draw(function) == first


def test_an_entry_that_fails_is_none(function):
    block = BLOCKS[function]("x", distinct_over=("nowhere",))
    with pytest.raises(ValueError, match="distinct_over"):
        block.__enter__()
    assert draw(function)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_recomputation_repeats_the_block_of_its_forward_pass(function, use_reentrant):
    masks = []

    def inside(x):
        with BLOCKS[function]("in"):
            masks.append(torch.nn.functional.dropout(torch.ones(64)))
        return x * masks[-1] * x

    x = torch.ones(64, requires_grad=True)
    checkpoint(inside, x, use_reentrant=use_reentrant).sum().backward()
    first, again = masks
    assert torch.equal(first, again)
    with refused(function, "in"):
        inside(x)


class Noise(Dataset):
    """Sample i draws in a block that has no index."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        with keyed("noise"):
            return torch.rand(1)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("make", [DataLoader, Loader])
def test_a_second_sample_of_a_loader(make, workers):
    """The scope is that of the worker, or of the job."""
    init = worker_init_fn if make is DataLoader else None
    for batch_size in (1, 2):
        restart(3)
        more = options(workers=workers, batch_size=batch_size, worker_init_fn=init)
        loader = make(Noise(), **more)
        with refused("random.keyed", "noise") as caught:
            list(loader)
        clear_frames(caught.tb)  # torch waits five seconds for workers that are freed in a cycle


def test_an_epoch_of_workers_is_a_scope():
    loader = Loader(Noise(), persistent_workers=True, **options(workers=2, batch_size=1))
    for epoch in range(2):
        fastseed.reseed(1, epoch)
        assert len(list(loader)) == 2


@pytest.mark.costly("compiles")
def test_compiled_code_needs_an_index():
    def opens(index):
        with keyed("flow", index):
            return torch.rand(2)

    compiled = torch.compile(opens, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"'flow' must have an index= in compiled code"):
        compiled(None)
    assert torch.equal(compiled(0), opens(0))
    torch._dynamo.reset()
    broken = torch.compile(opens, backend="eager")  # falls back to eager code, which can look
    broken(None)
    with refused("random.keyed", "flow"):
        broken(None)


def test_the_capture_of_a_graph_needs_an_index(monkeypatch):
    before = keyed("before")
    before.__enter__()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    needs = "must have an index= while a CUDA graph is captured"
    with pytest.raises(RuntimeError, match=f"'in' {needs}"):
        draw("random.keyed", "in")
    with pytest.raises(RuntimeError, match=f"'before' {needs}"):
        before.draws._key_in_capture(torch.device("cpu"), 0)
    draw("random.keyed", "in", index=0)
    before.__exit__(None)


def test_exact_states_have_the_names_of_the_scope(function):
    first = draw(function)
    held = fastseed.state_dict(rng=True)
    restart(4)
    draw(function, "y")
    fastseed.load_state_dict(held)
    with refused(function):
        draw(function)
    assert draw(function, "y")
    fastseed.init(1, rank=0, world_size=1)  # another process
    fastseed.load_state_dict(held)
    with refused(function):
        draw(function)
    assert fastseed.state_dict(rng=True).keys() == held.keys()
    fastseed.load_state_dict(fastseed.state_dict())  # coordinates alone: the scope begins anew
    assert draw(function) == first
    restart(5)
    assert "rng.0.process.blocks" not in fastseed.state_dict(rng=True)


@pytest.mark.parametrize(
    "text", [b"\xff", b"3", b"[3]", b"[" * 100_000], ids=["bytes", "number", "numbers", "deep"]
)
def test_damaged_names_are_refused(text):
    draw("fork_rng")
    held = fastseed.state_dict(rng=True)
    held["rng.0.process.blocks"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"state\['rng\.0\.process\.blocks'\] is damaged"):
        fastseed.load_state_dict(held)
    assert torch.equal(torch.get_rng_state(), before)
