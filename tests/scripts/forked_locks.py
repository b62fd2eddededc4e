"""Forks while other threads draw; prints how many children hang, and what else went wrong.

``forked_locks.py CASE``, see the functions below. Children that hang are killed.
"""

import json
import logging
import os
import signal
import sys
import threading
import time

import numpy as np
import torch

import fastseed
from fastseed.seeder import os_fork

torch.set_num_threads(1)
stop = threading.Event()
said = []


class Said(logging.Handler):
    """Collects what the library logs."""

    def emit(self, record):
        said.append(record.getMessage())


logging.getLogger("fastseed").addHandler(Said(logging.WARNING))
own, member, numpy = torch.Generator(), torch.Generator(), np.random.default_rng(1)


def draw():
    """From everything that has a lock."""
    torch.rand(3), np.random.random(3)
    torch.rand(3, generator=own), torch.rand(3, generator=member), numpy.random(3)


def in_child(work, seconds=10.0):
    """What a child's ``work`` gave: None if it hung, and was killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    until = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reader)
            return None
        time.sleep(0.002)
    with os.fdopen(reader) as pipe:
        return json.loads(pipe.read())


def drawing(*functions):
    """Threads that call these again and again."""

    def work(function):
        while not stop.is_set():
            function()

    for function in functions:
        threading.Thread(target=work, args=(function,), daemon=True).start()


def big(generator=None):
    """A draw that holds its generator's mutex for milliseconds."""
    numbers = torch.empty(1_000_000)
    return lambda: numbers.uniform_(generator=generator)


def start(on_os_fork=None):
    fastseed.init(42, on_os_fork=on_os_fork)
    fastseed.register_generator(own, name="own")
    fastseed.register_generator(fastseed.GeneratorPool([torch.Generator(), member]))
    fastseed.register_generator(numpy, name="numbers")
    fastseed.reseed(1, 2)


def everyone_draws():
    drawing(big(), big(), big(own), big(member))
    drawing(lambda: np.random.random(500_000), lambda: numpy.random(500_000))
    time.sleep(0.1)


def without():
    """Before ``init``: how many of up to 10 children hang; the first one is enough."""
    everyone_draws()
    for i in range(10):
        if in_child(draw, 1.0) is None:
            return {"hung": 1, "of": i + 1}
    return {"hung": 0, "of": 10}


def after(on_os_fork=None):
    """After ``init``: how many of 30 hang."""
    start(on_os_fork)
    everyone_draws()
    work = {None: lambda: draw() or "drew", "reseed": lambda: torch.initial_seed()}[on_os_fork]
    drew = [in_child(lambda: (draw(), work())[1]) for _ in range(30)]
    return {"hung": drew.count(None), "different": len(set(drew)), "said": said}


def two_threads():
    """Two threads that fork at once."""
    start("reseed")
    everyone_draws()
    drew = []

    def fork_some():
        for _ in range(5):
            drew.append(in_child(lambda: (draw(), torch.initial_seed())[1]))

    threads = [threading.Thread(target=fork_some) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    return {"children": len(drew), "hung": drew.count(None), "different": len(set(drew))}


def taken():
    """Locks that nobody gives back in time: children get new ones, and say so."""
    os_fork.SETTLE = os_fork.PATIENCE = 0.05
    start()
    begun = threading.Event()
    small, since = torch.empty(400_000, dtype=torch.float64), time.monotonic()
    small.cauchy_()
    many = int(1.5 / (time.monotonic() - since)) + 1  # a second and a half, or half a GB
    slow = torch.empty(min(many, 150) * len(small), dtype=torch.float64)

    def hold():
        with np.random.get_bit_generator().lock:
            begun.set()
            slow.cauchy_()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait(10)
    time.sleep(0.02)
    ended = in_child(lambda: [draw() or said, torch.rand(3).tolist()])
    busy = thread.is_alive()
    thread.join(60)
    return {"child": ended, "busy": busy, "drew": draw() or True, "said": said}


def reentrant():
    """A thread that forks while it holds NumPy's lock itself, and other libraries' handlers."""
    orders = []

    def handler(when):
        return lambda: (draw(), torch.manual_seed(1), orders.append(when))

    os.register_at_fork(before=handler("b"), after_in_parent=handler("p"))
    os.register_at_fork(after_in_child=lambda: torch.manual_seed(7))
    start("reseed")
    os.register_at_fork(before=handler("B"), after_in_parent=handler("P"), after_in_child=draw)
    with np.random.get_bit_generator().lock:
        child = in_child(lambda: (draw(), torch.initial_seed())[1])
    free = []
    thread = threading.Thread(target=lambda: free.append(draw()))
    thread.start()
    thread.join(10)
    return {"child": child, "orders": orders, "free": len(free), "said": said}


def nested():
    """A handler of another library forks itself, when NumPy's lock has been taken."""
    inside, children = [], []

    def fork_too():
        if not inside:
            inside.append(1)
            children.append(in_child(lambda: (draw(), torch.initial_seed())[1]))

    os.register_at_fork(before=fork_too)
    start("reseed")
    everyone_draws()
    children += [in_child(lambda: (draw(), torch.initial_seed())[1]) for _ in range(3)]
    free = []
    thread = threading.Thread(target=lambda: free.append(draw()), daemon=True)
    thread.start()
    thread.join(20)
    return {"children": children, "parent": torch.initial_seed(), "free": len(free), "said": said}


def failing():
    """A registered function that fails in children; and one that forks as it is reseeded."""
    start("reseed")
    parent, seen, children = os.getpid(), [], []

    def fail(seed):
        if os.getpid() != parent:
            raise ValueError("not here")

    fastseed.register_generator(fail, name="fails")
    fastseed.register_generator(seen.append, name="behind")
    fastseed.reseed(1, 3)
    told = in_child(
        lambda: [said, len(seen), torch.initial_seed(), fastseed.derivation.context.seeder.scope]
    )
    mine = torch.initial_seed()
    fastseed.unregister_generator(fail)
    forking = [lambda seed: children.append(in_child(lambda: said))]
    fastseed.register_generator(forking[0], name="forks")
    fastseed.reseed(1, 4)
    return {"failed": told, "parent": mine, "forked while reseeding": children}


CASES = {
    "without": without,
    "after": after,
    "reseed": lambda: after("reseed"),
    "two threads": two_threads,
    "taken": taken,
    "reentrant": reentrant,
    "nested": nested,
    "failing": failing,
}
print(json.dumps(CASES[sys.argv[1]]()), flush=True)
os._exit(0)
