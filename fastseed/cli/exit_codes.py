"""What `fastseed` ends with, and the error by which a subcommand ends with one of them."""

from __future__ import annotations

OK = 0
"""Done; nothing was found; equal; passed."""
FOUND = 1
"""A difference, a finding or a failure was found: what the command is there to find."""
USAGE = 2
"""Wrong usage or bad input: an unknown option, a damaged file, a folder that is not there."""
UNAVAILABLE = 3
"""It could not be done here: an extra or a tool is missing, or the moment is wrong."""
BUG = 70
"""An error nobody expected, with its traceback (EX_SOFTWARE of sysexits.h); never 1, so that a CI
job does not take it for a finding."""
INTERRUPTED = 130
"""Ctrl-C: 128 + SIGINT."""
PIPE = 141
"""Whoever read the output stopped reading in the middle: 128 + SIGPIPE."""

MEANINGS = {
    OK: "fine, equal or passed",
    FOUND: "a difference, a finding or a failure was found",
    USAGE: "wrong usage or bad input",
    UNAVAILABLE: "could not be done here (a missing extra or tool, a wrong moment)",
    BUG: "an unexpected error, with a traceback",
    INTERRUPTED: "interrupted",
    PIPE: "whoever read the output stopped reading",
}


class Exit(Exception):
    """Ends a subcommand with ``code`` and ``message`` on standard error, without a traceback.

    For what a subcommand finds out itself; errors of the library that say `fastseed.<function>: …`
    need none of it (see :func:`code_of`).
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> int:
    """The exit code for an error that left a subcommand; ``BUG`` if nobody expected it.

    The library's own errors tell by their type: a wrong argument (TypeError, ValueError) is bad
    input; a wrong moment or a missing library (RuntimeError, ImportError) could not be done here.
    """
    if isinstance(error, Exit):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return PIPE
    if isinstance(error, OSError) and error.filename is not None:
        return USAGE
    if str(error).startswith("fastseed"):
        if isinstance(error, (TypeError, ValueError)):
            return USAGE
        if isinstance(error, (RuntimeError, ImportError)):
            return UNAVAILABLE
    return BUG


def describe() -> str:
    """The exit codes as help shows them."""
    return "exit codes:\n" + "\n".join(f"  {code:>3}  {text}" for code, text in MEANINGS.items())
