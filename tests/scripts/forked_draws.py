"""Children of fork in every shape; prints what each of them drew, as JSON.

``forked_draws.py MODE`` where MODE is what ``init(fork=...)`` gets: ``none``, ``inherit`` or
``reseed``. Every child has a time-out of its own.
"""

import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import traceback

import numpy as np
import torch

import fastseed
from fastseed.seeder import os_fork

logging.getLogger("fastseed").setLevel(logging.ERROR)  # scopes are repeated on purpose
MODE = None if sys.argv[1] == "none" else sys.argv[1]
found = {}


def draws():
    """Eight draws: the three global generators', then the registered ones'."""
    mine = [random.getrandbits(60), int(np.random.randint(2**60)), torch.randint(2**60, ()).item()]
    users = [python.getrandbits(60), int(numpy.integers(2**60)), int(legacy.randint(2**60))]
    users += [torch.randint(2**60, (), generator=g).item() for g in (single, *pool)]
    return (
        mine + users + [int(bank.bits(1, dtype=torch.uint64)[1].item())] + ints[-1:] + common[-1:]
    )


def child(work, fork=os.fork):
    """What ``work()`` gives in a forked child."""
    reader, writer = os.pipe()
    pid = fork()
    if fork is os.forkpty:
        pid = pid[0]
    if pid == 0:
        signal.alarm(60)
        try:
            os.write(writer, json.dumps(work()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def nested():
    """A child's own draws, its children's, and a grandchild's."""
    own = draws()
    return {
        "own": own,
        "first": child(draws),
        "second": child(lambda: {"own": draws(), "first": child(draws)}),
    }


def later():
    """What a child draws at scopes that its parent visits too."""
    there = {}
    for epoch in (4, 5):
        fastseed.reseed(1, epoch)
        there[str(epoch)] = draws()
    pool.reseed(1, 4)
    bank.reseed(1, 4)
    there["members"] = [torch.randint(2**60, (), generator=pool[0]).item()]
    there["members"].append(int(bank.bits(1, dtype=torch.uint64)[1].item()))
    return there


def about():
    """What a child says of itself."""
    s = fastseed.derivation.context.seeder
    return {
        "place": [s.master_seed, s.rank, s.world_size, s.data_rank, list(s.scope)],
        "streams": [s.stream_master, fastseed.derivation.context.origin("test").master_seed],
        "key": fastseed.derive_key("numpy", task=1, epoch=4),
        "torch": torch.initial_seed(),
        "repr": repr(s),
    }


def in_process(queue):
    signal.alarm(60)
    queue.put(draws())


fastseed.init(42, rank=3, world_size=8, fork=MODE)
python, numpy, legacy = random.Random(1), np.random.default_rng(1), np.random.RandomState(1)
single, pool = torch.Generator(), fastseed.GeneratorPool([torch.Generator() for _ in range(2)])
bank = fastseed.random.StreamBank(3)
ints, common = [], []
for name, generator in {
    "own.python": python, "own.numpy": numpy, "own.legacy": legacy, "own.torch": single,
    "own.pool": pool, "own.bank": bank, "own.call": ints.append,
}.items():  # fmt: skip
    fastseed.register_generator(generator, name=name)
fastseed.register_generator(common.append, shared=True, name="common")

bank.reseed(0)
found["before the first reseed"] = [
    child(lambda: [draws()[:3], fastseed.derivation.context.seeder.scope])
]
fastseed.reseed(1, 4)
before = [torch.get_rng_state(), np.random.get_state()[1], random.getstate()]
found["children"] = [child(draws) for _ in range(3)]
after = [torch.get_rng_state(), np.random.get_state()[1], random.getstate()]
found["parent unchanged"] = (
    torch.equal(before[0], after[0])
    and np.array_equal(before[1], after[1])
    and before[2] == after[2]
)
found["parent"] = draws()
fastseed.reseed(1, 5)
found["next scope"] = [child(draws) for _ in range(2)]
found["parent at 5"] = draws()
fastseed.reseed(1, 4)
found["again"] = [child(draws)]
fastseed.reseed(2, 0)
found["nested"] = child(nested)
found["later"] = child(later)
found["about"] = child(about)
found["parent about"] = about()
found["forkpty"] = child(draws, os.forkpty)
queue = multiprocessing.get_context("fork").SimpleQueue()
process = multiprocessing.get_context("fork").Process(target=in_process, args=(queue,))
process.start()
found["Process"] = queue.get()
process.join(60)

fastseed.reseed(3, 0)
subprocess.run([sys.executable, "-c", ""], check=True, timeout=60)
found["after a subprocess"] = child(draws)
subprocess.run([sys.executable, "-c", ""], check=True, timeout=60, preexec_fn=lambda: None)
found["after a prepared subprocess"] = child(draws)

fastseed.reseed(3, 2)
with fastseed.seeder.api.current("fork").fork_rng("block"):
    found["inside of a block"] = child(draws)

fastseed.reseed(3, 1)
answers = {}
thread = threading.Thread(target=lambda: answers.update(thread=child(draws)))
thread.start()
thread.join(60)
found["from a thread"] = answers["thread"]

fastseed.init(42, rank=4, world_size=8, fork=MODE)  # starts anew: children count from 1
fastseed.reseed(1, 4)
found["rank 4"] = [child(lambda: draws()[:3])]
fastseed.init(42, rank=3, world_size=8, fork=MODE)
fastseed.reseed(1, 4)
found["anew"] = [child(lambda: draws()[:3])]
found["rule"] = os_fork.master_of_child(42, 3, (((1, 4, 0), 1),))
print(json.dumps(found), flush=True)
os._exit(0)
