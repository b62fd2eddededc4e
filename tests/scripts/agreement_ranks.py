"""One rank of a job that goes through every way to agree, or not to; prints the results as JSON.

It runs on four ranks; rank 2 is the one that differs. In the end processes stop and end.
FASTSEED_INIT: another rendezvous than the environment's.
"""

import json
import logging
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import fastseed
from fastseed._utils import version
from fastseed.derivation import context
from fastseed.distributed import agreement
from fastseed.distributed.agreement import record_of

logging.getLogger("fastseed").setLevel(logging.ERROR)  # scopes are repeated on purpose
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ODD = 2
found = {}


def verify(**arguments):
    """Return [the result of verify_agreement, the seconds it took]."""
    since = time.monotonic()
    try:
        fastseed.distributed.verify_agreement(**arguments)
        result = "agreed"
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return [result, time.monotonic() - since]


def start(**differing):
    """Start a job that is the same on every rank but for these arguments on one."""
    arguments = {"rank": RANK, "world_size": WORLD}
    arguments |= differing if RANK == ODD else {}
    master = arguments.pop("master_seed", 42)
    held = dist.is_initialized
    dist.is_initialized = lambda: False  # init would find the difference itself
    try:
        fastseed.init(master, **arguments)
    finally:
        dist.is_initialized = held
    fastseed.register_generator(str, name="everywhere")
    fastseed.reseed(1, 7)


def finish(end=True):
    print(json.dumps(found), flush=True)
    if end:
        os._exit(0)


def report(**changes):
    """Let this rank report other values than those of its job."""
    record = record_of(context.current("test")) | changes
    agreement.record_of = lambda seeder: record


def initialize(master):
    """Return [the result of init, the seconds it took]."""
    since = time.monotonic()
    try:
        fastseed.init(master)
        result = fastseed.get_master_seed()
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return [result, time.monotonic() - since]


found["before init, without a group"] = verify()
fastseed.init(42, rank=0, world_size=1)
found["without a group"] = verify()
context.seeder = None

dist.init_process_group(
    "gloo", init_method=os.environ.get("FASTSEED_INIT"), rank=RANK, world_size=WORLD,
    timeout=timedelta(seconds=5),
)  # fmt: skip

pids = [None] * WORLD
dist.all_gather_object(pids, os.getpid())
rank_0 = pids[0]
start()
before = torch.get_rng_state()
store = dist.distributed_c10d._get_default_store()
found["agree"], found["keys"] = [], []
for _ in range(3):
    found["agree"] += [verify()[0] for _ in range(10)]
    dist.barrier()
    if RANK == 0 and "FASTSEED_INIT" not in os.environ:
        found["keys"].append(store.num_keys())
    dist.barrier()
found["no generator moved"] = torch.equal(before, torch.get_rng_state())

for case, differing in {
    "master_seed": {"master_seed": 43},
    "on_os_fork": {"on_os_fork": "reseed"},
    "two fields": {"master_seed": 43, "on_os_fork": "reseed"},
}.items():
    start(**differing)
    found[case] = verify()[0]
start()
if RANK == ODD:
    fastseed.reseed(1, 8)
found["scope"] = verify()[0]
start()
if RANK == ODD:
    fastseed.register_generator(repr, name="only here")
    fastseed.unregister_generator(str)
found["registered"] = verify()[0]
start()
if RANK == ODD:
    version.__version__ = "0.0.9"
found["version"] = verify()[0]
start(rank=0)
found["same rank"] = verify()[0]
start()
report(**{"mesh coordinates": [RANK % 2, 0]})
found["same coordinates"] = verify()[0]
agreement.record_of = record_of
version.__version__ = "1"
start()
found["agree again"] = verify()[0]

# One rank comes late, as after an error. Then all is well again. So with the first rank.
for case, late in (("late", ODD), ("first late", 0)):
    if late == RANK:
        time.sleep(2.5)
    found[case] = verify(timeout=1.0 if late != RANK else 30)
    found[f"after {case}"] = verify()[0]

# torchrun's agent keeps the store: a restarted job finds the keys of the killed one there.
torchrun = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
os.environ |= torchrun
if RANK != ODD:
    verify(timeout=0.5)
dist.barrier()
os.environ["TORCHELASTIC_RESTART_COUNT"] = "1"
found["restarted"] = verify(timeout=20.0)[0]
for variable in torchrun:
    del os.environ[variable]

# Invalid arguments, or no init, on one rank.
found["invalid timeout"] = verify(timeout=-1.0 if RANK == ODD else 30.0)
found["invalid timeout of the first"] = verify(timeout="1" if RANK == 0 else 30.0)
seeder = context.seeder
context.seeder = None if RANK == ODD else seeder
found["no init"] = verify(timeout=30.0)
context.seeder = seeder
found["after an invalid argument"] = verify()[0]
found["invalid group"] = verify(group="world")

# Subgroups, one of which differs.
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
if RANK == ODD:
    fastseed.reseed(1, 9)
found["subgroup"] = verify(group=groups[RANK // 2])[0]
found["not in it"] = verify(group=groups[1 - RANK // 2])[0]

# The master seed: agreed on, different, invalid on one rank.
found["init"] = [initialize(m)[0] for m in (None, 42 + (RANK == ODD), -1 if RANK == ODD else 42)]

# Rank 1 ends; the others name it, also in init.
start()
dist.barrier()
if RANK == 1:
    finish()
found["one ended"] = verify(timeout=1.0)
found["init without rank 1"] = initialize(42)
if "FASTSEED_INIT" in os.environ:
    finish()

# Rank 0, which keeps the store, is stopped, and ends when rank 2 lets it continue.
if RANK == 0:
    finish(end=False)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
time.sleep(1.0)
found["rank 0 stopped"] = verify(timeout=1.0)
if RANK == 2:
    os.kill(rank_0, signal.SIGCONT)
    time.sleep(1.0)
    found["rank 0 ended"] = verify(timeout=1.0)
    found["init without rank 0"] = initialize(42)
finish()
