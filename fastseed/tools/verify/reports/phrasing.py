"""How values are put into words, the same in every form of the report."""

from __future__ import annotations

import re

from ..result import Difference, Finding, Interval, Paired, Run

# C0 but for newline and tab, DEL, C1, what reorders or hides text (Unicode's bidi controls and
# zero widths), surrogates and noncharacters: XML knows no way to write some of them.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\uffff\U000e0000-\U000e0fff]"
)
RESULTS = {True: "passed", False: "FAILED", None: "not asked"}


def clean(text: object) -> str:
    """``text`` with control characters written out, as ``\\x1b``."""
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], str(text))


def number(value: float | None, digits: int = 6) -> str:
    """A figure in at most ``digits`` digits, ``-`` for None."""
    return "-" if value is None else f"{value:.{digits}g}"


def exact(value: float | None) -> str:
    """All digits that tell the double from its neighbours."""
    return "-" if value is None else repr(float(value))


def interval(value: Interval | None) -> str:
    """``[low, high]``."""
    return "-" if value is None else f"[{number(value.low)}, {number(value.high)}]"


def seconds(value: float) -> str:
    """A duration: ``8.25 s``, ``12 min 5 s``, ``2 h 0 min``."""
    if not 0 <= value < 1e9:
        return f"{value} s"
    if value < 60:
        return f"{value:.2f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(n: int, what: str = "run") -> str:
    """``n`` things in words: "1 run", "2 runs"."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def pair(one: Paired) -> str:
    """What is compared: the resumed runs are put together with the halves before them."""
    return f"{'half and resumed' if one.b == 'resumed' else one.b} less {one.a}"


def difference(one: Difference) -> str:
    """Where two runs part, in a sentence."""
    if one.step is None:
        return f"{one.a} and {one.b} have not the same steps ({one.compared} in common)"
    values = f"{exact(one.value_a)} and {exact(one.value_b)}"
    return (
        f"{one.a} and {one.b} part at step {one.step}: {values} "
        f"({one.differing} of {one.compared} steps differ)"
    )


def finding(one: Finding) -> str:
    """A finding in one paragraph."""
    sure = "" if one.certain else " (likely)"
    where = f" [{one.where}]" if one.where else ""
    mend = f"\n  mend: {one.mend}" if one.mend else ""
    return f"{one.kind}{sure}: {one.says}{where}{mend}"


def alike(runs: tuple[Run, ...]) -> bool | None:
    """Whether runs have the same steps and losses to the last bit; None for fewer than two."""
    if len(runs) < 2:
        return None
    steps, bits = runs[0].curve.steps, runs[0].curve.values.tobytes()
    return all(run.curve.steps == steps and run.curve.values.tobytes() == bits for run in runs)
