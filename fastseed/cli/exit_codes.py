"""The exit codes of `fastseed`, and the error with which a subcommand ends with one of them."""

from __future__ import annotations

OK, FOUND, USAGE, UNAVAILABLE, BUG, INTERRUPTED, PIPE = 0, 1, 2, 3, 70, 130, 141
NOT_STARTED, NOT_FOUND = 126, 127  # what `env` and shells end with

MEANINGS = {
    OK: "success: equal, passed, nothing found",
    FOUND: "a difference, a finding or a failure was found",
    USAGE: "wrong usage or bad input",
    UNAVAILABLE: "not possible here: a missing extra or tool, a full disk, or an invalid state",
    BUG: "an unexpected error, with a traceback",
    INTERRUPTED: "interrupted (129 after SIGHUP, 143 after SIGTERM)",
    NOT_STARTED: "run: the program cannot be run",
    NOT_FOUND: "run: there is no such program",
    PIPE: "broken pipe",
}
"""The meanings. An unexpected error is never 1, so that CI does not take it for a finding."""


class Exit(Exception):
    """End a subcommand with ``code``, and ``message`` on standard error."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


class Signalled(KeyboardInterrupt):
    """A signal that ends a subcommand as Ctrl-C does; its argument is the number."""


def code_of(error: BaseException) -> int:
    """Return the exit code for an error; one of Python's that is not the library's is a bug."""
    own = str(error).startswith("fastseed")
    match error:
        case Exit():
            return error.code
        case Signalled():
            return 128 + int(error.args[0])
        case KeyboardInterrupt():
            return INTERRUPTED
        case BrokenPipeError():
            return PIPE
        case TimeoutError() | MemoryError():
            return UNAVAILABLE
        case OSError():
            return USAGE if own or error.filename is not None else UNAVAILABLE
        case TypeError() | ValueError() if own:
            return USAGE
        case RuntimeError() | ImportError() if own:
            return UNAVAILABLE
    return BUG


def describe() -> str:
    codes = "\n".join(f"  {code:>3}  {text}" for code, text in sorted(MEANINGS.items()))
    return f"exit codes (`fastseed run` ends with the program's own):\n{codes}"
