"""Findings as SARIF 2.1.0 (OASIS, 2020), which code hosts and editors show beside the code."""

from __future__ import annotations

import contextlib
import hashlib
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .registry import RULES, Finding
from .runner import Report

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def document(report: Report) -> dict[str, Any]:
    """The log file: JSON values; equal reports give equal ones."""
    ids = list(RULES)
    driver: dict[str, Any] = {
        "name": "fastseed lint",
        "rules": [_rule(id) for id in ids],
    }
    with contextlib.suppress(PackageNotFoundError):  # a source tree that was never installed
        driver["version"] = version("fastseed")
    notes = [{"level": "warning", "message": {"text": note}} for note in report.notes]
    seen: dict[str, int] = {}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
                "results": [_result(one, ids.index(one.rule), seen) for one in report.findings],
            }
        ],
    }


def _rule(id: str) -> dict[str, Any]:
    rule = RULES[id]
    return {
        "id": id,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": f"{rule.name}: {rule.message}"},
        "help": {"text": f"Fix: {rule.fix}."},
        "defaultConfiguration": {"level": rule.level},
        "properties": {"applies": rule.when},
    }


def _result(finding: Finding, index: int, seen: dict[str, int]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.path)}}
    location: dict[str, Any] = {"physicalLocation": place}
    message_text = f"{finding.message}. Fix: {finding.fix}."
    if finding.cell:
        # The line of a cell is no line of the notebook's file, so there is no region.
        location["logicalLocations"] = [{"name": f"cell {finding.cell}", "kind": "module"}]
        message_text = f"Cell {finding.cell}, line {finding.line}: {message_text}"
    else:
        place["region"] = {
            "startLine": finding.line,
            "startColumn": finding.column,
            "endLine": finding.end_line,
        }
    # Without the line, so that a finding is known again when lines above it come and go.
    what = f"{finding.path}\n{finding.rule}\n{finding.message}"
    seen[what] = seen.get(what, 0) + 1
    print_ = hashlib.sha256(f"{what}\n{seen[what]}".encode("utf-8", "surrogatepass")).hexdigest()
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": RULES[finding.rule].level,
        "message": {"text": _text(message_text)},
        "locations": [location],
        "partialFingerprints": {"fastseedLint/v1": print_[:32]},
    }


def _uri(path: str) -> str:
    if os.path.isabs(path):
        return Path(path).as_uri()
    return quote(os.fsencode(path))


def _text(text: str) -> str:
    """Without halves of surrogate pairs, which are no text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
