"""``fork_rng(name)`` and accelerators: their generators switch too; nothing initializes them."""

import pytest
import torch
from helpers.support import snapshot

import fastseed
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
