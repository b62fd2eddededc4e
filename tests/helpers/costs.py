"""What fast tests cost: the summary names those above half a second of CPU time.

A test that has to cost more says why: ``pytest.mark.costly("compiles a graph")``.
"""

import resource
from collections.abc import Iterator
from typing import Any

import pytest

from . import tiers

LIMIT = 0.5
_PROPERTY = "CPU seconds"


def _cpu_seconds() -> float:
    """Return those of this process and of the children that it has waited for."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note what the call of a test costs."""
    before = _cpu_seconds()
    try:
        return (yield)
    finally:
        if tiers.tier_of(item) == "fast" and item.get_closest_marker("costly") is None:
            item.user_properties.append((_PROPERTY, _cpu_seconds() - before))


def above(reports: list[Any]) -> list[tuple[float, str]]:
    """Return the tests above the limit, the dearest first."""
    costs = [
        (dict(report.user_properties).get(_PROPERTY, 0.0), report.nodeid)
        for report in reports
        if getattr(report, "when", "") == "call"
    ]
    return sorted((row for row in costs if row[0] > LIMIT), reverse=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print them."""
    found = above([report for some in terminalreporter.stats.values() for report in some])
    if found:
        total = sum(seconds for seconds, _ in found)
        terminalreporter.section(f"fast tests above {LIMIT} CPU s ({len(found)}, {total:.0f} s)")
        for seconds, name in found[:25]:
            terminalreporter.write_line(f"{seconds:6.1f}  {name}")
