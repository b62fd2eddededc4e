"""JUnit XML: by the rules of its schema, and with any text."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from helpers.made_reports import CASES, make
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import Failure, JUnitXml, Skipped

from fastseed.tools.verify.reports import junit
from fastseed.tools.verify.result import Check, Finding

COUNTS = ("tests", "failures", "errors", "skipped")


def check_schema(data: bytes) -> ElementTree.Element:
    """The rules that the usual schema (Jenkins' junit-10.xsd) has for the elements used here."""
    root = ElementTree.fromstring(data)
    assert root.tag == "testsuites" and set(root.attrib) == {"name", "time", *COUNTS}
    (suite,) = root
    assert suite.tag == "testsuite"
    assert {"name", "tests"} <= set(suite.attrib) <= {"name", "time", "id", *COUNTS}
    tags = [child.tag for child in suite]
    assert tags == ["properties"] + ["testcase"] * (len(tags) - 1)
    for one in suite[0]:
        assert one.tag == "property" and set(one.attrib) == {"name", "value"}
    for case in suite[1:]:
        assert {"name", "classname", "time"} == set(case.attrib) and float(case.get("time")) >= 0
        inner = [child.tag for child in case]
        assert inner in ([], ["system-out"], ["failure"], *OUTCOMES)
        for result in case.iter("failure"):
            assert set(result.attrib) <= {"message", "type"}
    counted = {
        "tests": len(suite) - 1,
        "failures": len(list(suite.iter("failure"))),
        "errors": 0,
        "skipped": len(list(suite.iter("skipped"))),
    }
    for holder in (root, suite):
        assert {name: int(holder.get(name)) for name in COUNTS} == counted
    return suite


OUTCOMES = (["failure", "system-out"], ["skipped", "system-out"])


@pytest.mark.parametrize("case", CASES)
def test_schema(case):
    report = CASES[case]()
    suite = check_schema(junit.xml(report))
    assert suite.get("name") == "fastseed verify"
    assert float(suite.get("time")) == round(report.seconds, 3)
    assert len(suite.findall("testcase")) == len(report.checks)


def read(report):
    (suite,) = JUnitXml.fromstring(junit.xml(report))
    return suite, {case.name.partition(":")[0]: case for case in suite}


def test_cases_of_a_report_that_passed():
    suite, cases = read(make())
    assert list(cases) == ["repeat", "prefix", "resume", "control"]
    assert all(case.is_passed for case in cases.values())
    assert {one.name: one.value for one in suite.properties()}["plan.seed"] == "7"


def test_cases_of_a_report_that_failed():
    report = make(differing=True)
    _, cases = read(report)
    assert [name for name, case in cases.items() if case.is_failure] == ["repeat", "resume"]
    (failure,) = cases["repeat"].result
    assert isinstance(failure, Failure) and failure.message == "7 of 7 pairs differ"
    for part in (
        "whole-0 and whole-1 part at step 0/17: 1.9281726 and 1.9281729",
        "whole-0 and whole-3 have not the same steps",
        "train.py:41",
        "generator (likely): a generator is made without a seed",
        "mend: rng = ",
    ):
        assert part in failure.text  # fmt: skip
    assert cases["repeat"].time == sum(run.seconds for run in report.of("whole"))
    assert "resumed-7: 2.12 s in runs/resumed-7" in cases["resume"].system_out


def test_what_was_not_asked_is_skipped():
    _, cases = read(make(count=1, unseeded=False))
    assert [name for name, case in cases.items() if case.is_skipped] == ["repeat", "control"]
    (skipped,) = cases["control"].result
    assert isinstance(skipped, Skipped) and skipped.message == "not asked"


def test_a_report_that_fails_without_a_check_that_does():
    report = replace(make(unseeded=False), passed=False, says="there is nothing to compare with")
    suite = check_schema(junit.xml(report))
    assert [case.get("name") for case in suite.iter("testcase")][-1] == "verdict"
    (failure,) = suite.iter("failure")
    assert failure.get("message") == report.says


def test_many_differences_are_cut_and_counted():
    check = make(differing=True).checks[0]
    check = replace(check, differences=check.differences[:1] * 100)
    (failure,) = check_schema(junit.xml(replace(make(), passed=False, checks=(check,)))).iter(
        "failure"
    )
    assert failure.text.count("whole-1 part at") == 20
    assert "... and 80 more pairs" in failure.text


NASTY = "\x00\x1b[31m\x08]]><failure/>&quot;\r\n\u202e\ud800\ufffe\uffff\x85 end"


def test_control_characters_break_nothing():
    report = make(differing=True)
    run = replace(report.runs[0], folder=NASTY)
    report = replace(
        report,
        checks=(Check(NASTY, NASTY, False, False, NASTY), Check(NASTY, NASTY, None, False, NASTY)),
        findings=(Finding(NASTY, True, NASTY, NASTY, NASTY),),
        runs=(run, *report.runs[1:]),
        plan={NASTY: NASTY},
        versions={NASTY: NASTY},
        verdict=NASTY,
    )
    suite = check_schema(junit.xml(report))
    (failure,) = suite.iter("failure")
    assert "\\x1b[31m" in failure.text and "]]><failure/>&quot;" in failure.text
    assert "\\u202e\\ud800\\ufffe\\uffff\\x85 end" in failure.text
    assert failure.get("message").startswith("\\x00\\x1b[31m\\x08]]><failure/>")


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(exclude_categories=()), max_size=30))
def test_any_text(text):
    report = replace(make(count=1, n=2), findings=(Finding("log", True, text, text),))
    report = replace(report, passed=False, checks=(Check("repeat", text, False, False, text),))
    check_schema(junit.xml(report))
