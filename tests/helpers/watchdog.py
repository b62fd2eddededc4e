"""A test that hangs fails, with the stack of every thread.

Each test has a limit: that of its ``timeout`` mark, else 180 seconds, or 600 in the other tiers.
pytest-timeout interrupts a test there by a signal, whose handler is Python code. Where that cannot
run, because native code waits, faulthandler writes the stacks a little later and ends the process:
under pytest-xdist that is one failure, and the other tests still run.
"""

import contextlib
import faulthandler
import os
from collections.abc import Iterator

import pytest

FAST, SLOW = 180, 600
GRACE = 30
_STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the standard error of the process, which capturing replaces during a test."""
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close it."""
    os.close(config.stash[_STDERR])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test a limit. The tiers are marked before."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            others = any(map(item.get_closest_marker, ("slow", "integrations", "proof")))
            seconds = SLOW if others else FAST
            item.add_marker(pytest.mark.timeout(seconds))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process if the signal has not ended the test."""
    with _ends_process(item):
        return (yield)


@contextlib.contextmanager
def _ends_process(item: pytest.Item) -> Iterator[None]:
    mark = item.get_closest_marker("timeout")
    assert mark is not None
    seconds = float(mark.kwargs.get("timeout", *mark.args[:1]))
    after = seconds + min(seconds, GRACE)
    faulthandler.dump_traceback_later(after, exit=True, file=item.config.stash[_STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
