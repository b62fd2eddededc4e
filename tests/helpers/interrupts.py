"""Interrupt a call at every point at which CPython runs signal handlers.

A Ctrl-C, or a handler that raises at a time limit, does not arrive between any two lines: the
interpreter runs handlers where a Python function is entered, where the call of a C function has
returned, and where a loop jumps back. So ``with lock:`` of a C lock always releases it, and
``lock.acquire()`` before ``try:`` may not. A tracer that raises at each line would also raise where
the interpreter never does, as between the body of a ``with`` and the release of its lock.

    for where in interruptions(lambda: fastseed.reseed(1, 5), prepare=scramble):
        assert not lock_is_held(), where
"""

import contextlib
import dis
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import fastseed

PACKAGE = str(Path(fastseed.__file__).parent)
_MOST = 100_000  # points: a call that has more does not end


class Interrupt(KeyboardInterrupt):
    """The exception of this module, to tell it from a real one."""


class _Points:
    """Counts the points of a call, and raises at one of them."""

    def __init__(self, at: int, within: tuple[str, ...]) -> None:
        self.left, self.within = at, within
        self.where = ""  # of the interrupt; empty before it
        self._last: dict[FrameType, str] = {}  # the last instruction, if it is a point of the frame

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """Raise at the point; a function for ``sys.settrace``."""
        if event == "call":
            self._last.pop(frame.f_back, None)  # type: ignore[arg-type]  # a Python function
            if not frame.f_code.co_filename.startswith(self.within) or _is_finalizer(frame):
                return None
            frame.f_trace = self.trace  # Python 3.13 wants it before f_trace_opcodes
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if frame.f_lasti <= _start(frame.f_code):  # and no exception thrown into a generator
                self._last[frame] = "entered"
        elif event == "opcode":
            last, kind = self._last.pop(frame, None), _kinds(frame.f_code).get(frame.f_lasti)
            if last is not None and not last == kind == "entered":
                self._pass(frame, last)
            if kind is not None:
                self._last[frame] = kind
        elif event in ("return", "exception"):
            self._last.pop(frame, None)
        return self.trace

    def _pass(self, frame: FrameType, kind: str) -> None:
        if self.where:
            return
        if self.left:
            self.left -= 1
            return
        code = frame.f_code
        self.where = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name} ({kind})"
        raise Interrupt(self.where)


def _is_finalizer(frame: FrameType | None) -> bool:
    """Return whether it runs in a ``__del__``, from which no exception gets out."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@functools.cache
def _start(code: CodeType) -> int:
    """Return the offset of the instruction behind which a function has been entered."""
    offsets = [i.offset for i in dis.get_instructions(code) if i.opname == "RESUME"]
    return offsets[0] if offsets else -1  # Python 3.10 has no such instruction


@functools.cache
def _kinds(code: CodeType) -> dict[int, str]:
    """Return what can be interrupted of the instructions of a function, by offset.

    The tracer raises before the following instruction. So it leaves out the few calls behind which
    a ``try`` or ``with`` ends, as in ``with lock: return f()``.
    """
    found = {}
    instructions = dis.Bytecode(code)
    entries = getattr(instructions, "exception_entries", ())  # from Python 3.11 on

    def handler(offset: int) -> int:
        return next((e.target for e in entries if e.start <= offset < e.end), -1)

    for instruction, following in itertools.pairwise(instructions):
        name = instruction.opname
        if handler(instruction.offset) != handler(following.offset):
            continue
        if name == "RESUME" and (instruction.arg or 0) < 2:
            found[instruction.offset] = "entered"
        elif name.startswith("CALL") and not name.startswith("CALL_INTRINSIC"):
            found[instruction.offset] = "call returned"
        elif "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name:
            found[instruction.offset] = "loop"
    return found


def interrupt(call: Callable[[], Any], at: int, within: tuple[str, ...] = ()) -> str:
    """Call ``call`` and raise at its point number ``at``, from 0; return where that was.

    Points are those in files of fastseed, of ``contextlib``, and below the paths ``within``. An
    empty string: the call ended before that point. An interrupt that ``call`` does not let out is
    an AssertionError; other exceptions pass.
    """
    points = _Points(at, (PACKAGE, contextlib.__file__, *within))
    tracer = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 wants one frame to have it before settrace
    sys.settrace(points.trace)
    try:
        call()
    except Interrupt:
        return points.where
    finally:
        sys.settrace(tracer)
    assert not points.where, f"the interrupt was caught: {points.where}"
    return ""


def interruptions(
    call: Callable[[], Any], prepare: Callable[[], Any] = lambda: None, within: tuple[str, ...] = ()
) -> Iterator[str]:
    """Call ``call`` once for each of its points, interrupted there; yield where, after each.

    ``prepare`` is called before each attempt, without interrupts.
    """
    for at in range(_MOST):
        prepare()
        where = interrupt(call, at, within)
        if not where:
            return
        yield where
    raise AssertionError(f"a call with more than {_MOST} points")
