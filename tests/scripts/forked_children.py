"""Children of fork in every form; prints what each of them draws, as JSON.

``forked_children.py MODE``, with the ``on_os_fork`` of ``init``: ``inherit`` or ``reseed``.
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

logging.getLogger("fastseed").setLevel(logging.ERROR)  # scopes are repeated on purpose
MODE = sys.argv[1]
found = {}


def draws():
    """Return random numbers: of the three global generators, then of the registered ones."""
    mine = [random.getrandbits(60), int(np.random.randint(2**60)), torch.randint(2**60, ()).item()]
    users = [int(numpy.integers(2**60))]
    users += [torch.randint(2**60, (), generator=g).item() for g in (single, *pool)]
    return mine + users + ints[-1:] + common[-1:]


def child(work, fork=os.fork):
    """Return what ``work()`` gives in a forked child."""
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
    """Return a child's own random numbers, its children's, and a grandchild's."""
    own = draws()
    second = child(lambda: {"own": draws(), "first": child(draws)})
    return [own, child(draws), second["own"], second["first"]]


def later():
    """Return what a child draws in scopes that its parent visits too."""
    numbers = []
    for epoch in (4, 5):
        fastseed.reseed(1, epoch)
        numbers.append(draws())
    return numbers


def about():
    """Return how a process describes itself."""
    s = fastseed.derivation.context.seeder
    return {
        "job": [s.master_seed, s.rank, s.world_size, s.data_rank, list(s.scope)],
        "stream_master": s._master_of(3),
        "key": fastseed.derive_key("numpy", task=1, epoch=4),
    }


def in_process(queue):
    signal.alarm(60)
    queue.put(draws())


def generators():
    return [
        torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()[1]
    ]  # fmt: skip


fastseed.init(42, rank=3, world_size=8, on_os_fork=MODE)
numpy, single = np.random.default_rng(1), torch.Generator()
pool = fastseed.GeneratorPool([torch.Generator() for _ in range(2)], "p")
ints, common = [0], [0]
for name, generator in {"n": numpy, "t": single, "p": pool, "i": ints.append}.items():
    fastseed.register_generator(generator, name=name)
fastseed.register_generator(common.append, shared=True, name="common")

found["before the first reseed"] = child(
    lambda: [draws()[:3], fastseed.derivation.context.seeder.scope]
)  # fmt: skip
fastseed.reseed(1, 4)
before = generators()
found["children"] = [child(draws) for _ in range(3)]
found["parent unchanged"] = generators() == before
found["parent"] = [draws()]
fastseed.reseed(1, 5)
found["next scope"] = [child(draws) for _ in range(2)]
found["parent at 5"] = [draws()]
fastseed.reseed(1, 4)
found["repeated scope"] = [child(draws)]
fastseed.reseed(2, 0)
found["nested"] = child(nested)
found["later"] = child(later)
found["about"], found["parent about"] = child(about), about()
found["forkpty"] = [child(draws, os.forkpty)]
queue = multiprocessing.get_context("fork").SimpleQueue()
process = multiprocessing.get_context("fork").Process(target=in_process, args=(queue,))
process.start()
found["Process"] = [queue.get()]
process.join(60)

fastseed.reseed(3, 0)
subprocess.run([sys.executable, "-c", ""], check=True, timeout=60)
found["after a subprocess"] = [child(draws)]
fastseed.reseed(3, 2)
with fastseed.fork_rng("block"):
    found["inside a block"] = [child(draws)]
answers = []
thread = threading.Thread(target=lambda: answers.append(child(draws)))
thread.start()
thread.join(60)
found["from a thread"] = answers


def fail(seed):
    if os.getpid() != parent:
        raise ValueError("not here")


parent = os.getpid()
fastseed.register_generator(fail, name="fails")
fastseed.register_generator(print, name="behind")
fastseed.unregister_generator(print)
fastseed.reseed(3, 3)
found["with a generator that fails"] = [child(draws)]
fastseed.unregister_generator(fail)

fastseed.init(42, rank=3, world_size=8, on_os_fork=MODE)  # children count from 1 again
fastseed.reseed(1, 4)
found["new init"] = child(lambda: draws()[:3])
print(json.dumps(found), flush=True)
os._exit(0)
