"""Forks while other threads draw; prints how many children hang, as JSON.

``forked_locks.py CASE``, see CASES. Children that hang are killed.
"""

import json
import os
import signal
import sys
import threading
import time

import numpy as np
import torch

import fastseed

torch.set_num_threads(1)
own, member, numpy = torch.Generator(), torch.Generator(), np.random.default_rng(1)


def draw():
    """Draw from everything that has a lock."""
    torch.rand(3), np.random.random(3)
    torch.rand(3, generator=own), torch.rand(3, generator=member), numpy.random(3)


def in_child(work, seconds=30.0):
    """Return the result of ``work`` in a child; None if it hung, and was killed."""
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
    """Start a thread for each function that calls it again and again."""

    def work(function):
        while True:
            function()

    for function in functions:
        threading.Thread(target=work, args=(function,), daemon=True).start()
    time.sleep(0.1)


def big(generator=None):
    """Return a call that holds a generator's mutex for milliseconds."""
    numbers = torch.empty(1_000_000)
    return lambda: numbers.uniform_(generator=generator)


def start(on_os_fork):
    fastseed.init(42, on_os_fork=on_os_fork)
    fastseed.register_generator(own, name="own")
    fastseed.register_generator(
        fastseed.GeneratorPool([own, member], "pool")
    )  # one generator twice
    fastseed.register_generator(numpy, name="numbers")
    fastseed.reseed(1, 2)


def four_threads():
    drawing(big(), big(member), lambda: np.random.random(500_000), lambda: numpy.random(500_000))


def without():
    """Count the children that hang before ``init``, of up to 10; the first one is enough."""
    four_threads()
    hung = any(in_child(draw, 1.0) is None for _ in range(10))
    return {"hung": int(hung)}


def after(on_os_fork, forks=60):
    """Count the children that hang after ``init``."""
    start(on_os_fork)
    four_threads()
    found = [in_child(lambda: (draw(), torch.initial_seed())[1]) for _ in range(forks)]
    return {"hung": found.count(None), "different": len(set(found))}


def two_threads():
    """Two threads that fork at the same time, while others seed, which waits holding the GIL."""
    start("reseed")
    drawing(big(), big(own), lambda: torch.manual_seed(1), lambda: torch.get_rng_state())
    found = []

    def fork_some():
        for _ in range(5):
            found.append(in_child(lambda: (draw(), torch.initial_seed())[1]))

    threads = [threading.Thread(target=fork_some) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    return {"children": len(found), "hung": found.count(None), "different": len(set(found))}


def handlers():
    """Handlers of other libraries draw and seed around a fork, and fork themselves."""
    inside = []

    def fork_too():
        if not inside:
            inside.append(0)
            inside[0] = in_child(lambda: (draw(), torch.initial_seed())[1])

    os.register_at_fork(before=lambda: (draw(), fork_too()), after_in_parent=draw)
    start("reseed")
    os.register_at_fork(before=draw, after_in_parent=draw, after_in_child=draw)
    found = in_child(lambda: (draw(), torch.initial_seed())[1])
    free = []
    thread = threading.Thread(target=lambda: free.append(draw()))
    thread.start()
    thread.join(10)
    found = [found, *inside]
    return {"hung": found.count(None), "different": len(set(found)), "free": len(free)}


def held():
    """The forking thread holds a lock itself; before NumPy 2.4 it is not re-entrant."""
    start("reseed")
    with np.random.get_bit_generator().lock:
        found = in_child(lambda: (draw(), torch.initial_seed())[1])
    draw()
    return {"hung": int(found is None)}


CASES = {
    "without": without,
    "few": lambda: after("reseed", 8),
    "inherit": lambda: after("inherit"),
    "reseed": lambda: after("reseed"),
    "two threads": two_threads,
    "handlers": handlers,
    "held": held,
}
print(json.dumps(CASES[sys.argv[1]]()), flush=True)
os._exit(0)
