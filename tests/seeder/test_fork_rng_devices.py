"""``fork_rng(name)``: generators of accelerators switch too; in a recomputation blocks repeat."""

import threading
from functools import partial

import pytest
import torch
from helpers.support import snapshot
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed._backend import private_torch
from fastseed.generators.accelerator import AcceleratorGenerators
from fastseed.seeder.process_lock import process

AT = {"task": 1, "epoch": 7, "step": 3}


class Device:
    """A default generator, as that of a counter-based device: its state is a seed and an offset."""

    def __init__(self):
        self.seed, self.offset = 1, 0
        self.device = torch.device("meta")

    def manual_seed(self, seed):
        self.seed, self.offset = seed, 0

    def get_state(self):
        return torch.tensor([self.seed - 2**63, self.offset])

    def set_state(self, state):
        self.seed, self.offset = int(state[0]) + 2**63, int(state[1])


class Accelerator(AcceleratorGenerators):
    """Two devices that exist only once they are initialized."""

    in_one_call = False

    def __init__(self):
        super().__init__("xpu")
        self.devices, self.on, self.queued = [Device(), Device()], False, None

    def ready(self):
        return self.on

    def _default_generators(self):
        return self.devices

    def current_device(self):
        return 0

    def _queue(self):
        self.queued = self._apply_waiting

    def initialize(self):
        self.on = True
        self.queued()

    def state(self):
        return [(d.seed, d.offset) for d in self.devices]


@pytest.fixture
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(*AT.values())
    yield fastseed.derivation.context.seeder
    assert process.blocks == ()


@pytest.fixture
def accelerator(job):
    found = Accelerator()
    job.generators.accelerators.append(found)
    job.move(*AT.values())
    return found


def seeds(job, name, index=None):
    number = 0 if index is None else index + 1 << 8
    return [(job.derive_seed(name, **AT, index=number + i), 0) for i in range(2)]


@pytest.mark.parametrize("index", [None, 4])
def test_devices_switch_to_the_stream(job, accelerator, index):
    accelerator.initialize()
    accelerator.devices[1].offset = 8
    before = accelerator.state()
    with fastseed.fork_rng("a", index=index):
        assert accelerator.state() == seeds(job, "a/torch.xpu", index)
        accelerator.devices[0].offset = 12
    assert accelerator.state() == before


@pytest.mark.parametrize("index", [None, 4])
def test_a_block_does_not_initialize_devices(job, accelerator, index):
    with fastseed.fork_rng("a", index=index):
        assert not accelerator.on
    accelerator.initialize()
    assert accelerator.state() == seeds(job, "torch.xpu")


def test_devices_initialized_inside_are_on_the_stream_and_are_restored(job, accelerator):
    with fastseed.fork_rng("a"):
        accelerator.initialize()
        assert accelerator.state() == seeds(job, "a/torch.xpu")
        accelerator.devices[0].offset = 12
    assert accelerator.state() == seeds(job, "torch.xpu")


def test_a_capture_is_refused(job, accelerator, monkeypatch):
    def refuse(function):
        raise RuntimeError(f"fastseed.{function}: a graph is being captured")

    before = snapshot()
    monkeypatch.setattr(accelerator, "refuse_capture", refuse)
    with pytest.raises(RuntimeError, match=r"fastseed\.fork_rng: a graph is being captured"):
        fastseed.fork_rng("a").__enter__()
    assert snapshot() == before


def test_devices_that_fail_leave_every_generator_as_it_was(job, accelerator, monkeypatch):
    accelerator.initialize()
    before, states = snapshot(), accelerator.state()

    def fail(stream):
        accelerator.devices[0].manual_seed(3)
        raise OSError("lost")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="lost"):
        patch.setattr(accelerator, "reseed", fail)
        fastseed.fork_rng("a").__enter__()
    assert snapshot() == before and accelerator.state() == states
    with fastseed.fork_rng("a"):  # an entry that failed is none
        assert accelerator.state() == seeds(job, "a/torch.xpu")


LAYERS = 3


@pytest.fixture
def weights():
    fastseed.init(42, rank=0, world_size=1)
    generator = torch.Generator().manual_seed(1)
    yield [torch.randn(8, 8, generator=generator, requires_grad=True) for _ in range(LAYERS)]
    assert process.blocks == ()


class Model:
    """Layers with dropout inside a block, twice, and outside of it; records every mask."""

    def __init__(self, weights, numbered):
        self.weights, self.numbered = weights, numbered
        self.masks = {layer: [] for layer in range(LAYERS)}

    def layer(self, x, i):
        masks = []
        for part in range(2):
            number = 2 * i + part
            name, index = ("inside", number) if self.numbered else (f"inside/{number}", None)
            with fastseed.fork_rng(name, index=index):
                masks.append(dropout(torch.ones_like(x)))
        masks.append(dropout(torch.ones_like(x)))
        self.masks[i].append(torch.stack(masks).detach())
        for mask in masks:
            x = x * (1 + mask)
        return (x @ self.weights[i]).sin()

    def run(self, call):
        """Return all gradients, and random numbers after the forward and the backward pass."""
        fastseed.derivation.context.seeder.move(1, 7, 0)
        x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
        h = x
        for i in range(LAYERS):
            h = call(self.layer, h, i)
        ends = [torch.rand(3)]
        h.square().sum().backward()
        with fastseed.fork_rng("after"):
            ends.append(torch.rand(3))
        ends.append(torch.rand(3))
        gradients = [x.grad, *(w.grad.clone() for w in self.weights)]
        for w in self.weights:
            w.grad = None
        return gradients, ends

    def repeats(self):
        """Return whether each layer ran twice with the same masks."""
        assert all(len(masks) == 2 for masks in self.masks.values())
        return all(a.equal(b) for a, b in self.masks.values())


def plain(function, *arguments):
    return function(*arguments)


REENTRANT = partial(checkpoint, use_reentrant=True)
NEW = partial(checkpoint, use_reentrant=False)


def equal(a, b):
    return all(x.equal(y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("call", [REENTRANT, NEW])
def test_blocks_repeat_in_recomputation(weights, call, numbered, caplog):
    gradients, ends = Model(weights, numbered).run(plain)
    model = Model(weights, numbered)
    again, after = model.run(call)
    assert model.repeats()
    assert equal(again, gradients)
    assert equal(after, ends)
    assert caplog.records == []


@pytest.mark.parametrize("name", ["around", "inside"])
def test_blocks_around_a_checkpoint(weights, name):
    """Also the stream that the checkpointed function uses."""

    def around(call):
        def run(f, *arguments):
            with fastseed.fork_rng(name, index=1):
                return call(f, *arguments)

        return run

    gradients, ends = Model(weights, numbered=True).run(around(plain))
    model = Model(weights, numbered=True)
    again, after = model.run(around(NEW))
    assert model.repeats() and equal(again, gradients) and equal(after, ends)


def test_two_threads_of_a_backward_pass_do_not_mix_their_blocks(monkeypatch):
    """As with several devices: the engine runs one thread for each."""
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(1)
    monkeypatch.setattr(private_torch, "in_backward", lambda: True)
    errors = []

    def enter():
        try:
            with fastseed.fork_rng("y", index=1):
                pass
        except RuntimeError as error:
            errors.append(str(error))

    with fastseed.fork_rng("x", index=0):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(errors) == 1 and "another thread is inside fork_rng('x')" in errors[0]
