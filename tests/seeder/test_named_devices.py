"""``fork(name)`` and accelerators: their default generators go along; nothing initialises them."""

from __future__ import annotations

import pytest
import torch
from helpers.support import snapshot

import fastseed
from fastseed.generators.accelerator import AcceleratorGenerators
from fastseed.seeder import stream_stack

AT = {"task": 1, "epoch": 7, "step": 3}


@pytest.fixture
def job():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(*AT.values())
    yield fastseed.derivation.context.seeder
    assert stream_stack._frames == [] and stream_stack._layers == []


def enter(s, *arguments, **more):
    with s.fork(*arguments, **more):
        pass


class Device:
    """A default generator, as that of a counter-based device: its state is a seed and an offset."""

    def __init__(self):
        self.seed, self.offset = 1, 0

    def manual_seed(self, seed):
        self.seed, self.offset = seed, 0

    def get_state(self):
        return torch.tensor([self.seed - 2**63, self.offset])

    def set_state(self, state):
        self.seed, self.offset = int(state[0]) + 2**63, int(state[1])


class Accelerator(AcceleratorGenerators):
    """Two devices that exist only once they are initialised."""

    in_one_call = False

    def __init__(self):
        super().__init__("xpu")
        self.devices, self.on, self.queued = [Device(), Device()], False, None

    def ready(self):
        return self.on

    def _default_generators(self):
        return self.devices

    def _current_device(self):
        return 0

    def _queue(self):
        self.queued = self._apply_waiting

    def initialise(self):
        self.on = True
        self.queued()

    def state(self):
        return [(d.seed, d.offset) for d in self.devices]


@pytest.fixture
def accelerator(job):
    found = Accelerator()
    job._accelerators.append(found)
    job.restore(*AT.values())
    return found


def seeds(job, name, index=None, **more):
    number = 0 if index is None else index + 1 << 8
    return [(job.seed(name, **AT, index=number + i, **more), 0) for i in range(2)]


@pytest.mark.parametrize("index", [None, 4])
def test_devices_go_along(job, accelerator, index):
    accelerator.initialise()
    accelerator.devices[1].offset = 8
    before = accelerator.state()
    with fastseed.fork_rng("a", index=index):
        assert accelerator.state() == seeds(job, "a/torch.xpu", index)
        accelerator.devices[0].offset = 12
    assert accelerator.state() == before
    with fastseed.fork_rng("a", index=index):
        assert accelerator.devices[0].offset == (12 if index is None else 0)
    assert accelerator.state() == before


@pytest.mark.parametrize("index", [None, 4])
def test_devices_are_not_initialised(job, accelerator, index):
    """But one that is initialised inside is on the stream, and comes back."""
    with fastseed.fork_rng("a", index=index):
        assert not accelerator.on
    accelerator.on = True
    accelerator.queued()
    assert accelerator.state() == seeds(job, "torch.xpu")


def test_devices_that_are_initialised_inside(job, accelerator):
    with fastseed.fork_rng("a"):
        accelerator.initialise()
        assert accelerator.state() == seeds(job, "a/torch.xpu")
        accelerator.devices[0].offset = 12
    assert accelerator.state() == seeds(job, "torch.xpu")
    with fastseed.fork_rng("a"):
        assert accelerator.devices[0].offset == 12


def test_a_capture_is_refused(job, accelerator, monkeypatch):
    def refuse(function):
        raise RuntimeError(f"fastseed.{function}: a graph is being captured")

    before = snapshot()
    monkeypatch.setattr(accelerator, "refuse_capture", refuse)
    with pytest.raises(RuntimeError, match=r"fastseed\.fork: a graph is being captured"):
        enter(job, "a")
    assert snapshot() == before


def test_devices_that_fail_leave_the_cpu_as_it_was(job, accelerator, monkeypatch):
    accelerator.initialise()
    before, states = snapshot(), accelerator.state()

    def fail(stream):
        accelerator.devices[0].manual_seed(3)
        raise OSError("lost")

    monkeypatch.setattr(accelerator, "reseed_members", fail)
    with pytest.raises(OSError, match="lost"):
        enter(job, "a")
    assert snapshot() == before and accelerator.state() == states
