"""Run in a process of its own, because torch's hooks cannot be taken back.

argv[1] is the folder to build in, argv[2] the check to run.
"""

import sys
import threading
import time
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

torch.utils.rename_privateuse1_backend("fake")
device = load(
    "fake_device", [str(Path(__file__).with_name("fake_device.cpp"))], build_directory=sys.argv[1]
)

import fastseed  # noqa: E402

seeder = fastseed.Seeder(42, rank=3, world_size=8)
fastseed.init(42, rank=3, world_size=8)
LOW64 = 2**64 - 1


def hooks() -> None:
    """Device 1 is the current one, so it is member 0; the others follow, modulo their number."""
    before = device.seeds()
    seeder.reseed(1, 7)
    after = device.seeds()
    expected = [
        seeder.derive_seed("torch.fake", task=1, epoch=7, index=(ordinal - 1) % 3)
        for ordinal in range(3)
    ]
    assert after == expected, (before, after, expected)
    assert len(set(after)) == 3
    seeder.reseed(1, 8)
    assert not set(device.seeds()) & set(after)


def another_class() -> None:
    """A generator on the CPU that is no MT19937 takes the low 64 bits as seed, at offset 0."""
    own = device.another_class()
    assert own.device.type == "cpu"
    own.set_offset(8)
    seeder.register_generator(own, name="theirs")
    seeder.reseed(1, 7)
    assert (
        own.initial_seed() == seeder.derive_seed("theirs", task=1, epoch=7)
        and own.get_offset() == 0
    )

    own.set_offset(12)
    state = seeder.state_dict(rng=True)
    seeder.reseed(1, 8)
    seeder.load_state_dict(state)
    assert (
        own.initial_seed() == seeder.derive_seed("theirs", task=1, epoch=7)
        and own.get_offset() == 12
    )

    a, b, cpu = device.another_class(), device.another_class(), torch.Generator()
    pool = fastseed.GeneratorPool([a, cpu, b, a], name="mixed")
    for generator in (a, b):
        generator.set_offset(4)
    pool.reseed(1, 7)
    keys = [fastseed.derive_key("mixed", task=1, epoch=7, index=i) & LOW64 for i in range(4)]
    assert [g.initial_seed() for g in pool] == [keys[3], keys[1], keys[2], keys[3]]
    assert (a.get_offset(), b.get_offset()) == (0, 0)
    a.set_offset(4)
    pool.reseed_from_seeds([5, 6, -1, 2**64 - 2])
    assert [g.initial_seed() for g in pool] == [2**64 - 2, 6, 2**64 - 1, 2**64 - 2]
    assert a.get_offset() == 0
    assert torch.equal(cpu.get_state(), torch.Generator().manual_seed(6).get_state())


def waiting() -> None:
    """Python continues while a reseed waits for a thread that has a generator's mutex.

    With the GIL held there, the sleep below would never end.
    """
    cpu, theirs = torch.Generator(), device.another_class()
    pool = fastseed.GeneratorPool([cpu, theirs], name="waits")
    alone = fastseed.Seeder(42, rank=3, world_size=8)
    alone.register_generator(cpu, name="alone")
    fakes = device.generators()
    for generator, call in (
        (torch.default_generator, lambda: seeder.reseed(1, 9)),
        (fakes[0], lambda: seeder.reseed(1, 9)),
        (fakes[2], lambda: seeder.reseed(1, 9)),
        (cpu, lambda: alone.reseed(1, 9)),
        (cpu, lambda: pool.reseed(1, 9)),
        (theirs, lambda: pool.reseed(1, 9)),
        (cpu, lambda: pool.reseed_from_seeds([1, 2])),
        (theirs, lambda: pool.reseed_from_seeds([1, 2])),
    ):
        call()
        expected = generator.initial_seed()
        generator.manual_seed(7)
        held = device.Held(generator)
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        time.sleep(0.1)
        assert thread.is_alive(), "it did not wait for the mutex"
        held.let_go()
        thread.join(30)
        assert not thread.is_alive() and generator.initial_seed() == expected


{"hooks": hooks, "another_class": another_class, "waiting": waiting}[sys.argv[2]]()
print("passed:", sys.argv[2])
