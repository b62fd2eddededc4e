"""A verification's report as files: JSON, HTML, PNG and JUnit XML."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ...._utils.atomic_file import replace
from ..result import Report
from . import html_report, json_report, junit, plots
from .json_report import load

__all__ = ["FILES", "FORMATS", "Written", "load", "write"]

FORMATS = ("json", "html", "png", "junit")
FILES = {"json": "report.json", "html": "report.html", "png": "curves.png", "junit": "junit.xml"}
"""What the file of each format is called."""

_NEEDS = {"html": "jinja2", "png": "matplotlib", "junit": "junitparser"}


class Written(dict[str, Path]):
    """The files that were written, by format.

    Attributes:
        skipped: format -> why it was not written, or not in full: a sentence that names what is
            missing and how to install it. Empty when all is well.
    """

    skipped: dict[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.skipped = {}


def write(
    report: Report,
    folder: str | os.PathLike[str],
    *,
    formats: Iterable[str] = FORMATS,
) -> Written:
    """Write ``report`` to ``folder``, which is made if need be; files of before are replaced.

    All is made before the first file is written, and each appears at once or not at all.

    Args:
        report: what a verification found.
        folder: where; the files are named as :data:`FILES` says.
        formats: some of :data:`FORMATS`. Left as it is, a format whose package is missing is left
            out and ``skipped`` of what is returned says why (the HTML page is then written
            without its picture); one that is asked for has to be written.

    Returns:
        The files by format, and what is missing (:class:`Written`).

    Raises:
        TypeError, ValueError: ``report``, ``folder`` or ``formats`` is not as above.
        ImportError: a format that was asked for needs the extra ``report``.
        OSError: the folder cannot be written.
    """
    function = "fastseed.tools.verify.reports.write"
    if not isinstance(report, Report):
        raise TypeError(f"{function}: report must be a Report, got {type(report).__name__}")
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"{function}: folder must be a path, got {type(folder).__name__}")
    asked = _check_formats(function, formats)
    written = Written()
    contents = _make(report, asked, formats is not FORMATS, written.skipped)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        written[name] = replace(target / FILES[name], content)
    return written


def _check_formats(function: str, formats: Iterable[str]) -> tuple[str, ...]:
    if isinstance(formats, str) or not isinstance(formats, Iterable):
        raise TypeError(f"{function}: formats must be a sequence of names, got {formats!r}")
    asked = tuple(formats)
    for i, name in enumerate(asked):
        if name not in FORMATS:
            rule = f"one of {', '.join(FORMATS)}"
            raise ValueError(f"{function}: formats[{i}] must be {rule}, got {name!r}")
    return asked


def _make(
    report: Report, asked: tuple[str, ...], strict: bool, skipped: dict[str, str]
) -> dict[str, bytes]:
    """The content of each file, in the order of :data:`FORMATS`."""
    contents: dict[str, bytes] = {}
    picture: bytes | None = None
    if "png" in asked or "html" in asked:
        try:
            picture = plots.png(report)
        except ImportError as error:
            # The page alone was asked for: it is one without its picture, and says so.
            if strict and "png" in asked:
                raise _missing("png") from error
            skipped["png"] = str(_missing("png"))
    for name in (name for name in FORMATS if name in asked):
        try:
            if name == "json":
                contents[name] = json_report.text(report).encode("ascii")
            elif name == "html":
                contents[name] = html_report.html(report, picture).encode("utf-8")
            elif name == "junit":
                contents[name] = junit.xml(report)
            elif picture is not None:
                contents[name] = picture
        except ImportError as error:
            if strict:
                raise _missing(name) from error
            skipped[name] = str(_missing(name))
    return contents


def _missing(name: str) -> ImportError:
    return ImportError(
        f"fastseed.tools.verify.reports.write: the format {name!r} needs {_NEEDS[name]}: "
        'pip install "fastseed[report]"'
    )
