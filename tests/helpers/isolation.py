"""Restoring what a test changes in its process."""

import contextlib
import multiprocessing
import os
import random
import shutil
from collections.abc import Iterator

import numpy as np
import torch

from fastseed._backend import derive
from fastseed.determinism import switches
from helpers.simd import set_simd


def choose_mkl_branch() -> None:
    """Let MKL read ``MKL_CBWR`` now: it does so once, and a test may call ``deterministic``."""
    torch.ones(2, 2) @ torch.ones(2, 2)


def choose_temporary_files() -> None:
    """Let ``tmp_path`` lie in memory where there is room: a disk is waited for at each flush."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)


def choose_device_guard() -> None:
    """Let torch choose now, in a thread that stays, how it compiles without a device.

    A CUDA build keeps the guard of the thread that compiles first, also when that thread has ended:
    the next one that compiles then dies, or does not compile (c10, ``ensureCUDADeviceGuardSet``).
    """
    if torch.version.cuda and not torch.cuda.is_available():
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode():
            pass


@contextlib.contextmanager
def unchanged_process() -> Iterator[None]:
    """Restore global generators, environment, threads, start method, SIMD path and switches."""
    bit_generator = np.random.get_bit_generator()
    drawn = random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()
    simd, threads = derive.simd(), torch.get_num_threads()
    environment = dict(os.environ)
    settings = switches.switches(True, True, switches.REPEATABLE)
    values = [switch.read() for switch in settings]
    method = multiprocessing.get_start_method(allow_none=True)  # importing torchrl sets one
    try:
        yield
    finally:
        multiprocessing.set_start_method(method, force=True)
        np.random.set_bit_generator(bit_generator)
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])
        torch.set_rng_state(drawn[2])
        torch.set_num_threads(threads)
        if simd is not None:
            set_simd(simd)
        for name in set(os.environ) | set(environment):
            if not name.startswith("PYTEST_"):
                switches.write_variable(name, environment.get(name))
        for switch, value in zip(settings, values, strict=True):
            if switch.read() != value:
                switch.write(value)
