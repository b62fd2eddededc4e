"""``reshard.py FOLDER``: four ranks save; four, two and eight load. Prints what each rank found.

All ranks are children of this process, which has imported everything, over gloo.
"""

import hashlib
import json
import logging
import os
import random
import sys
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import fastseed
from fastseed import checkpoint

folder = sys.argv[1]
one, pattern = os.path.join(folder, "one"), os.path.join(folder, "rank-{rank}")
sharded = os.path.join(folder, "dcp")
warnings.simplefilter("ignore")


class Said(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def states(shared):
    numpy = np.random.get_state(legacy=False)
    held = (
        repr(random.getstate()),
        repr((numpy["state"]["key"].tobytes(), numpy["state"]["pos"], numpy["gauss"])),
        repr(torch.get_rng_state().tolist()),
        repr(shared.get_state().tolist()),
    )
    return [hashlib.sha256(text.encode()).hexdigest()[:12] for text in held]


def start(master_seed):
    fastseed.init(master_seed)
    shared = torch.Generator()
    fastseed.register_generator(shared, True, name="shared")
    fastseed.reseed(1, 5)
    return shared


def error_of(call):
    try:
        call()
    except BaseException as error:  # what torch raises here is no Exception
        return f"{type(error).__name__}: {error}"
    return None


def save(rank):
    shared = start(42)
    random.gauss(0, 1), np.random.standard_normal(), torch.randn(rank + 1)
    torch.rand(3, generator=shared)
    model = {"weight": torch.arange(4.0)}
    dcp.save({"model": model, "fastseed": checkpoint.Stateful(rng=True)}, checkpoint_id=sharded)
    coordinates = checkpoint.Stateful(rng=False)
    dcp.save({"fastseed": coordinates}, checkpoint_id=sharded + "-coordinates")
    checkpoint.save(one, rng=True)
    checkpoint.save(pattern, rng=True)
    checkpoint.save(one + "-coordinates", rng=False)
    assert os.path.exists(one)
    found = states(shared)
    errors = [error_of(lambda: checkpoint.save(os.path.join(folder, "none", "x"), rng=True))]
    if rank == 2:
        fastseed.derivation.context.current("test").state_dict = lambda rng: 1 / 0
    errors.append(error_of(lambda: checkpoint.save(one, rng=True)))
    return {"states": found, "errors": errors}


def load(rank):
    said = Said()
    logging.getLogger("fastseed").addHandler(said)
    found = {}

    def note(name, action):
        shared = start(7)
        said.texts.clear()
        problem = error_of(action)
        if problem is None:
            scope = [*fastseed.derivation.context.seeder.scope, fastseed.get_master_seed()]
            found[name] = {"scope": scope, "states": states(shared), "said": list(said.texts)}
        else:
            found[name] = {"error": problem}

    def distributed(where, **kwargs):
        model = {"weight": torch.zeros(4)}
        both = {"fastseed": checkpoint.Stateful(**kwargs)}
        if where == sharded:
            both["model"] = model
        dcp.load(both, checkpoint_id=where)
        assert where != sharded or model["weight"].tolist() == [0, 1, 2, 3]

    note("one", lambda: checkpoint.load(one))
    note("pattern", lambda: checkpoint.load(pattern))
    note("one coordinates", lambda: checkpoint.load(one + "-coordinates"))
    note("dcp", lambda: distributed(sharded, source=sharded))
    note("dcp reader", lambda: distributed(sharded, source=dcp.FileSystemReader(sharded)))
    note("dcp without source", lambda: distributed(sharded, rng=True))
    where = sharded + "-coordinates"
    note("dcp coordinates", lambda: distributed(where, rng=False))
    shared = start(42)
    found["begin"] = {"states": states(shared)}
    return found


def run(stage, rank, size, work):
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store-{stage}", rank=rank, world_size=size
    )
    with open(os.path.join(folder, f"{stage}-{rank}.json"), "w") as file:
        json.dump(work(rank), file)
    dist.barrier()


def ranks(stage, size, work):
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)
                run(stage, rank, size, work)
                os._exit(0)
            finally:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * size, codes
    found = []
    for rank in range(size):
        with open(os.path.join(folder, f"{stage}-{rank}.json")) as file:
            found.append(json.load(file))
    return found


results = {"saved": ranks("save", 4, save)}
for size in (4, 2, 8):
    results[str(size)] = ranks(f"load{size}", size, load)
print(json.dumps(results))
