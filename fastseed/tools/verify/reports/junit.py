"""The report as JUnit XML, which continuous integration shows as tests.

One suite, ``fastseed verify``, with a case for each check: skipped where it was not asked, failed
with the first differences and the findings where the answer is no. A report that fails though no
check does (nothing to compare with, say) has one more case, ``verdict``, which fails. The time of
a case is that of the runs that it needed more than the case before it; that of the suite, of all.
"""

from __future__ import annotations

import io
from typing import Any

from ..result import Check, Report
from .phrasing import clean, difference, exact, finding, seconds

SUITE = "fastseed verify"
_RUNS = {"repeat": "whole", "prefix": "half", "resume": "resumed", "control": "unseeded"}
_SHOWN = 20  # differences in the text of a failure


def xml(report: Report) -> bytes:
    """The file, in UTF-8.

    Raises:
        ImportError: junitparser is missing.
    """
    from junitparser import JUnitXml, TestSuite

    suite = TestSuite(SUITE)
    for name, value in _properties(report):
        suite.add_property(clean(name), clean(value))
    for check in report.checks:
        suite.add_testcase(_case(check, report))
    if not report.passed and all(check.passed is not False for check in report.checks):
        suite.add_testcase(_verdict(report))
    suite.update_statistics()  # type: ignore[no-untyped-call]
    suite.time = round(report.seconds, 3)  # of all runs, not the sum of the cases
    out = JUnitXml(SUITE)
    out.add_testsuite(suite)
    for name in ("tests", "failures", "errors", "skipped", "time"):
        setattr(out, name, getattr(suite, name))
    buffer = io.BytesIO()
    out.write(buffer, pretty=True)
    return buffer.getvalue()


def _properties(report: Report) -> list[tuple[str, str]]:
    found = [("verdict", report.verdict), ("required", report.required), ("says", report.says)]
    found += [(f"version.{name}", version) for name, version in report.versions.items()]
    found += [(f"plan.{name}", str(value)) for name, value in report.plan.items()]
    if report.variance_ratio is not None:
        found.append(("variance_ratio", exact(report.variance_ratio)))
    return found


def _case(check: Check, report: Report) -> Any:
    from junitparser import Failure, Skipped, TestCase

    runs = report.of(_RUNS.get(check.name, ""))
    took = round(sum(run.seconds for run in runs), 3)
    case = TestCase(clean(f"{check.name}: {check.title}"), "fastseed.tools.verify", took)
    if check.passed is None:
        case.result = [Skipped(clean(check.says))]
    elif not check.passed:
        failure = Failure(clean(check.says), "difference")
        failure.text = clean(_why(check, report))
        case.result = [failure]
    lines = [f"{run.name}: {seconds(run.seconds)} in {run.folder}" for run in runs]
    case.system_out = clean("\n".join([check.says, *lines]))
    return case


def _why(check: Check, report: Report) -> str:
    lines = [difference(one) for one in check.differences[:_SHOWN]]
    if len(check.differences) > _SHOWN:
        lines.append(f"... and {len(check.differences) - _SHOWN} more pairs")
    return "\n".join([check.says, *lines, *_findings(report)])


def _findings(report: Report) -> list[str]:
    return ["", "findings:", *map(finding, report.findings)] if report.findings else []


def _verdict(report: Report) -> Any:
    from junitparser import Failure, TestCase

    case = TestCase("verdict", "fastseed.tools.verify", 0.0)
    failure = Failure(clean(report.says), "verdict")
    failure.text = clean("\n".join([report.verdict, report.says, *_findings(report)]))
    case.result = [failure]
    return case
