"""Isolation of tests: no ambient state gets in, and no state of a test gets out."""

import gc
import os
import signal

import pytest
import torch
from helpers.costs import pytest_runtest_call, pytest_terminal_summary
from helpers.isolation import (
    choose_device_guard,
    choose_mkl_branch,
    choose_temporary_files,
    unchanged_process,
)
from helpers.small import set_small_limits
from helpers.support import LAUNCHER_VARIABLES
from helpers.tiers import chosen, pytest_addoption, pytest_ignore_collect, select
from helpers.watchdog import pytest_collection_modifyitems as set_limits
from helpers.watchdog import pytest_configure, pytest_runtest_protocol, pytest_unconfigure

from fastseed import pyt
from fastseed.derivation import context, place

__all__ = [  # hooks
    "pytest_addoption",
    "pytest_configure",
    "pytest_ignore_collect",
    "pytest_runtest_call",
    "pytest_runtest_protocol",
    "pytest_terminal_summary",
    "pytest_unconfigure",
]

choose_mkl_branch()
choose_device_guard()
choose_temporary_files()

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell has started this in the background, and every process of a test would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def pytest_report_header(config: pytest.Config) -> str:
    """Name the tiers, and the device of the tests that are marked ``cuda``."""
    return f"tier: {', '.join(chosen(config))}; tests marked cuda: on {DEVICE}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tiers that were asked for; give each a limit."""
    select(config, items)
    set_limits(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a CUDA device skip ``needs_cuda``; with FAIL_WITHOUT_CUDA=1 it and ``cuda`` fail."""
    required = item.get_closest_marker("needs_cuda") is not None
    if DEVICE == "cuda" or not (required or item.get_closest_marker("cuda")):
        return
    if os.environ.get("FAIL_WITHOUT_CUDA") == "1":
        pytest.fail("needs a CUDA device, and FAIL_WITHOUT_CUDA=1", pytrace=False)
    if required:
        pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session")
def device() -> str:
    """Return the device of the tests marked ``cuda``: the CPU where there is no CUDA device."""
    return DEVICE


def pytest_collection_finish() -> None:
    """Hide what is there from the garbage collector, and from ``debug.check``.

    A process of tests holds ten times as many objects as a script, and a collection walks over all.
    """
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let the interpreter end as it does: libraries report what they find alive then."""
    gc.unfreeze()


@pytest.fixture(scope="module")
def frozen_objects() -> None:
    """Hide also what tests have imported since."""
    pytest_collection_finish()


@pytest.fixture
def one_thread() -> None:
    """As ranks have: several threads add in another order, and wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def isolated(monkeypatch):
    """Generators, seeder, SIMD path, environment and torch's switches are as before the test.

    The environment says nothing of a launcher, so that ranks are what the test says.
    """
    for variable in LAUNCHER_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    set_small_limits(monkeypatch)
    monkeypatch.setattr(context, "seeder", None)
    monkeypatch.setattr(pyt, "_fwr13y", None)
    monkeypatch.setattr(place, "worker", None)  # tests run a worker in this process
    with unchanged_process():
        yield
