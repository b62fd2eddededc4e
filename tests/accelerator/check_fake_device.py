"""Run in a process of its own, because torch's hooks cannot be taken back: argv[1] builds there."""

import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

torch.utils.rename_privateuse1_backend("fake")
device = load(
    "fake_device",
    [str(Path(__file__).with_name("fake_device.cpp"))],
    build_directory=sys.argv[1],
)

import fastseed  # noqa: E402

seeder = fastseed.Seeder(42, rank=3, world_size=8)
before = device.seeds()
seeder.reseed(1, 7)
after = device.seeds()
# Device 1 is the current one, so it is member 0; the others follow, modulo their number.
expected = [
    seeder.seed("torch.fake", task=1, epoch=7, index=(ordinal - 1) % 3) for ordinal in range(3)
]
assert after == expected, (before, after, expected)
assert len(set(after)) == 3
seeder.reseed(1, 8)
assert not set(device.seeds()) & set(after)
print("three devices seeded through the hooks")
