"""One rank of a job that checks whether all ranks agree.

``agreement_ranks.py cases FOLDER`` goes, on four ranks, through every way to agree, or not to; in
the end processes die. ``agreement_ranks.py short FOLDER`` is a little of it, on two. What each rank
met is written to ``FOLDER/<rank>.json``. Rendezvous: the environment, or FASTSEED_INIT.
"""

import json
import logging
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import fastseed
from fastseed.seeder import api

logging.getLogger("fastseed").setLevel(logging.ERROR)  # scopes are repeated on purpose
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ODD = WORLD // 2  # the rank that differs
found = {}


def met(**arguments):
    """[what verify_agreement led to, the seconds it took]."""
    since = time.monotonic()
    try:
        fastseed.distributed.verify_agreement(**arguments)
        told = "agreed"
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    return [told, time.monotonic() - since]


def start(**differing):
    """A job that is the same on every rank but for these arguments on one."""
    arguments = {"rank": RANK, "world_size": WORLD, "fork": None, "scheme": "philox-v1"}
    arguments |= differing if RANK == ODD else {}
    master = arguments.pop("master_seed", 42)
    api._seeder = fastseed.Seeder.__new__(fastseed.Seeder)
    held = dist.is_initialized
    dist.is_initialized = lambda: False  # init would find the difference itself
    try:
        fastseed.init(master, **arguments)
    finally:
        dist.is_initialized = held
    fastseed.register_generator(str, name="everywhere")
    fastseed.reseed(1, 7)


def write():
    Path(sys.argv[2], f"{RANK}.json").write_text(json.dumps(found))
    os._exit(0)


class Mesh:
    """As much of a mesh as is compared."""

    def __init__(self, *ranks, **sizes):
        self.ranks, self.names, self.sizes = ranks, tuple(sizes), tuple(sizes.values())


found["before init, without a group"] = met()
fastseed.init(42, rank=0, world_size=1)
found["without a group"] = met()
api._seeder = None

dist.init_process_group(
    "gloo", init_method=os.environ.get("FASTSEED_INIT"), rank=RANK, world_size=WORLD,
    timeout=timedelta(seconds=120),
)  # fmt: skip

start()
before = torch.get_rng_state()
store = dist.distributed_c10d._get_default_store()
found["agree"], found["keys"] = [], []
for _ in range(3):
    found["agree"] += [met()[0] for _ in range(20)]
    dist.barrier()
    if RANK == 0 and sys.argv[1] == "cases":
        found["keys"].append(store.num_keys())
    dist.barrier()
found["no generator moved"] = torch.equal(before, torch.get_rng_state())

if sys.argv[1] == "short":
    start(master_seed=43)
    found["master_seed"] = met()[0]
    start()
    if RANK == ODD:
        dist.barrier()
    found["late"] = met(timeout=1.0)
    if RANK != ODD:
        dist.barrier()
    found["agree again"] = met()[0]
    dist.barrier()
    write()

for case, differing in {
    "master_seed": {"master_seed": 43},
    "scheme": {"scheme": "fwr13y"},
    "world_size": {"world_size": 8},
    "fork": {"fork": "reseed"},
    "two fields": {"master_seed": 43, "world_size": 8},
}.items():
    start(**differing)
    found[case] = met()[0]
start()
if RANK == ODD:
    fastseed.reseed(1, 8)
found["scope"] = met()[0]
start()
if RANK == ODD:
    fastseed.register_generator(repr, name="only here")
    fastseed.unregister_generator(str)
found["registered"] = met()[0]
start()
fastseed.register_generator(repr, shared=RANK == ODD, name="mine")
found["shared"] = met()[0]
start()
version, api.__version__ = api.__version__, "0.0.9" if RANK == ODD else "1.0.0"
found["version"] = met()[0]
api.__version__ = version
derivation = fastseed._backend.derive_ops.DERIVATION_VERSION
fastseed._backend.derive_ops.DERIVATION_VERSION = 2 if RANK == ODD else 1
found["derivation"] = met()[0]
fastseed._backend.derive_ops.DERIVATION_VERSION = derivation
place = RANK // 2, RANK % 2
api._seeder._mesh = Mesh(*place, dp=2, tp=2) if RANK != ODD else Mesh(RANK, 0, dp=4, tp=1)
found["mesh"] = met()[0]
start(rank=0)
found["same rank"] = met()[0]
start()
api._seeder._mesh = Mesh(*(place if RANK != ODD else (0, 0)), dp=2, tp=2)
found["same place"] = met()[0]
start()
api._seeder = fastseed.Seeder(42, rank=0, world_size=1)  # before there was a process group
found["alone"] = met()[0]
start()
found["agree again"] = met()[0]

# A rank raises before it comes, and one comes late. Then all is well again.
start()
if RANK == ODD:
    try:
        fastseed.reseed(-1)
    except ValueError:
        dist.barrier()
    found["late"] = met(timeout=30)
else:
    found["late"] = met(timeout=1.5)
    dist.barrier()
found["after a late one"] = met()[0]

# So with the first rank, which collects what the others say.
if RANK == 0:
    dist.barrier()
    found["first late"] = met(timeout=30)
else:
    found["first late"] = met(timeout=1.5)
    dist.barrier()
found["after the first was late"] = met()[0]

# Bad arguments, or no init, on one rank.
found["bad argument"] = met(timeout=-1.0 if RANK == ODD else 30.0)
found["bad argument of the first"] = met(timeout="1" if RANK == 0 else 30.0)
seeder = api._seeder
api._seeder = None if RANK == ODD else seeder
found["no init"] = met(timeout=30.0)
api._seeder = seeder
found["after a bad argument"] = met()[0]
found["wrong group"] = met(group="world")

# Subgroups, one of which differs.
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
if RANK == ODD:
    fastseed.reseed(1, 9)
found["subgroup"] = met(group=groups[RANK // 2])[0]
found["not in it"] = met(group=groups[1 - RANK // 2])[0]

# Processes end: first one, then the one that keeps the store.
start()
dist.barrier()
if RANK == 1:
    write()
found["one ended"] = met(timeout=1.5)
if RANK == 0:
    write()
time.sleep(0.5)
found["the store ended"] = met(timeout=1.5)
write()
