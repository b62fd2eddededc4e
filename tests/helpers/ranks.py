"""Gloo ranks that stay alive between tests: ``ranks(4, function, *arguments)``.

Starting a job of four ranks and importing torch's sharding in each costs seconds. Here the ranks of
each size are started once for a test worker; they get module-level functions by name and send back
what these return. Each function finds the state that a test finds: no seeder, and environment,
generators and switches as they were. A rank that fails or hangs ends its pool: the test fails with
the stacks, and the next one gets a new pool. What kills, stops or forks a rank has processes of its
own: :func:`helpers.processes.run_job`.
"""

import atexit
import contextlib
import faulthandler
import gc
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from helpers.processes import clean_environment, forking, free_port

GRACE = 3.0  # seconds in which the others may answer, too, after a rank has failed
ENVIRONMENT = clean_environment()  # as the suite was started, whichever test comes first


def ranks(size: int, function: Callable[..., Any], *arguments: Any, timeout: float = 120) -> Any:
    """Return what a module-level function returns on each of ``size`` ranks of a gloo group."""
    if size not in _pools:
        _pools[size] = _Pool(size)
    try:
        return _pools[size].call(function, arguments, timeout)
    except BaseException:
        _pools.pop(size).end()
        raise


@contextlib.contextmanager
def group_of_one() -> Iterator[None]:
    """A gloo group of this process alone.

    It is freed with what still refers to it, such as the cycles of a sharded model: where the
    garbage collector finds it later, in a forked worker, gloo joins threads that are not there.
    """
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
        gc.collect()


def answers_of_the_living(
    size: int, function: Callable[..., Any], jobs: dict[str, tuple[int, Any]], limit: float
) -> dict[str, dict[int, Any]]:
    """Return by job what ``function(job)`` returns on the gloo ranks that answer.

    All jobs run at once, in forks of this process, which should be one of :func:`alone`. ``jobs``
    has how many ranks answer, and the argument. ``limit`` is that of the group, in seconds.
    """
    context, folder = multiprocessing.get_context("fork"), tempfile.mkdtemp()
    results: Any = context.Queue()
    processes = [
        context.Process(
            target=_answer_and_wait,
            args=(results, name, rank, size, f"{folder}/{number}", limit, function, job),
        )
        for number, (name, (_, job)) in enumerate(jobs.items())
        for rank in range(size)
    ]
    found: dict[str, dict[int, Any]] = {name: {} for name in jobs}
    try:
        for process in processes:
            process.start()
        for _ in range(sum(count for count, _ in jobs.values())):
            name, rank, answer = results.get(timeout=150)
            found[name][rank] = answer
    finally:
        for process in processes:
            process.kill()
            process.join()
        shutil.rmtree(folder)
    return found


def _answer_and_wait(
    results: Any, name: str, rank: int, size: int, file: str, limit: float, function: Any, job: Any
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    where, seconds = f"file://{file}", timedelta(seconds=limit)
    dist.init_process_group("gloo", where, seconds, rank=rank, world_size=size)
    results.put((name, rank, function(job)))
    time.sleep(60)  # until the other ranks have their answers, too


class _Pool:
    """The ranks of one size."""

    def __init__(self, size: int):
        self._outputs = [Path(tempfile.mkstemp()[1]) for _ in range(size)]
        self._pipes, self._processes = [], []
        port = free_port()
        for rank, output in enumerate(self._outputs):
            pipe, other = Pipe()
            arguments = (other, rank, size, port, output, ENVIRONMENT)
            self._pipes.append(pipe)
            self._processes.append(forking.Process(target=_serve, args=arguments))
            self._processes[-1].start()
            other.close()

    def call(self, function: Callable[..., Any], arguments: Any, timeout: float) -> list[Any]:
        """Return the answer of each rank; raise AssertionError if one fails or is late."""
        order = pickle.dumps((sys.path, pickle.dumps((function, arguments))))
        for pipe in self._pipes:
            pipe.send_bytes(order)
        waiting = dict(zip(self._pipes, range(len(self._pipes)), strict=True))
        answers, failures = [None] * len(self._pipes), []
        until = time.monotonic() + timeout
        while waiting:
            ready = wait([*waiting], max(0.0, until - time.monotonic()))
            if not ready:
                break
            for pipe in ready:
                rank = waiting.pop(pipe)
                succeeded, answers[rank] = _received(pipe)
                if not succeeded:
                    failures.append(f"rank {rank}:\n{answers[rank]}")
                    until = min(until, time.monotonic() + GRACE)
        if waiting and not failures:
            failures.append(f"ranks {sorted(waiting.values())} have not answered in {timeout} s")
        if failures:
            failures += [self._stack(rank) for rank in waiting.values()]
            raise AssertionError("\n".join(failures))
        return answers

    def _stack(self, rank: int) -> str:
        """End a rank by SIGABRT, on which faulthandler writes its stacks; return its output."""
        os.kill(self._processes[rank].pid, signal.SIGABRT)
        self._processes[rank].join(10)
        return f"rank {rank} printed:\n{self._outputs[rank].read_text(errors='replace')}"

    def end(self) -> None:
        """End all ranks."""
        for process in self._processes:
            process.kill()
            process.join()
        for pipe, output in zip(self._pipes, self._outputs, strict=True):
            pipe.close()
            output.unlink()


def _received(pipe: Any) -> tuple[bool, Any]:
    """Return whether a rank succeeded, and its value or stack."""
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return False, "ended"


_pools: dict[int, _Pool] = {}


@atexit.register
def _end_all() -> None:
    for pool in _pools.values():
        pool.end()


def _serve(
    pipe: Connection, rank: int, size: int, port: int, output: Path, environment: dict[str, str]
) -> None:
    """Answer calls until the tests end."""
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    faulthandler.enable(2)
    os.environ.clear()
    os.environ.update(environment)
    import torch
    import torch.distributed as dist

    from helpers.isolation import choose_mkl_branch

    torch.set_num_threads(1)
    choose_mkl_branch()
    where = f"tcp://127.0.0.1:{port}"
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", where, limit, rank=rank, world_size=size)
    while True:
        try:
            order = pipe.recv_bytes()
        except EOFError:
            os._exit(0)  # threads of gloo may abort an interpreter that ends in good order
        pipe.send_bytes(_answer(order))


def _answer(order: bytes) -> bytes:
    """Call a function in the state that a test finds; return its pickled value or stack."""
    sys.path, call = pickle.loads(order)
    from fastseed.derivation import context
    from helpers.isolation import unchanged_process

    try:
        function, arguments = pickle.loads(call)
        with unchanged_process(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pickle.dumps((True, function(*arguments)))
    except BaseException:
        return pickle.dumps((False, traceback.format_exc()))
    finally:
        context.seeder = None
        logging.disable(logging.NOTSET)
