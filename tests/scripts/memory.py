"""How much a process grows over many reseeds: ``memory.py ours|theirs COUNT`` prints bytes."""

import json
import os
import sys
from pathlib import Path

from fwr13y.seeder.seed_gen import SeedGen

import fastseed

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


who, count = sys.argv[1], int(sys.argv[2])
if who == "ours":
    seeder = fastseed.Seeder(42, rank=0, world_size=1)
    step = seeder.reseed
else:
    # fwr13y's reseed is this and three calls that keep nothing (and take 30 times longer).
    generate = SeedGen(42, 1, 0)
    step = generate
for epoch in range(1000):
    step(1, epoch)
before = resident()
for epoch in range(1000, 1000 + count):
    step(1, epoch)
print(json.dumps(resident() - before))
