"""The report as one HTML file without scripts, which loads nothing.

The template escapes all text of runs, and a policy in the page forbids to load anything.
"""

from __future__ import annotations

import base64
from pathlib import Path

from ..result import Report
from . import tables


def html(report: Report, picture: bytes | None) -> str:
    """Return the page; ``picture`` is a PNG, or None without matplotlib."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html").render(
        report=report,
        tables=tables.summary(report),
        details=tables.details(report),
        runs=len(report.runs),
        duration=tables.seconds(report.seconds),
        ratio=tables.number(report.variance_ratio),
        picture=None if picture is None else base64.b64encode(picture).decode("ascii"),
        description=tables.describe(report),
    )
