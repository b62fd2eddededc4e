"""``python -m benchmarks.report FILE.jsonl ...``: results as the tables of the pages.

In a page only the text between the two marker lines is replaced. Each further file, of another
CPU, becomes a column of ratios. What was not measured is listed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .case import Case
from .cases import all_cases
from .table import Row, busy, duration, times

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
NOT_MEASURED = "not measured"
BUSY_MARK = "Busy: beside another process."

SUMMARY = (  # what it is in words, the case, the contender, its name in words
    ("a million seeds", "derive_seeds/{}/1e6", "NumPy SFC64", "NumPy's SFC64"),
    ("reseed 10,000 generators", "pool.reseed/{}/1e4", "loop of manual_seed",
     "`manual_seed` in a loop"),
    ("1,024 numbers of 4,096 streams", "uniform/{}/4096x1024",
     "loop of torch's, generator=g", "torch's generators in a loop"),
    ("`reseed` Python, NumPy, torch", "reseed/{}/3-generators", "fwr13y, 30 frames deep",
     "fwr13y inside a framework"),
    ("the same", "reseed/{}/3-generators", "three seed calls by hand", "three calls by hand"),
    ("order a million samples", "sampler.order/{}/1e6", "torch.randperm",
     "`torch.randperm`"),
    ("64 numbers by key", "random.normal/{}/64", "torch.randn(64)", "`torch.randn`"),
    ("20,000 samples by `per_sample`", "loader.pass/{}/20000-per-sample", "DataLoader",
     "`DataLoader`, one stream"),
)  # fmt: skip


class Result:
    """The rows of a file: of a case and a contender the last one, with the machine before it."""

    def __init__(self, path: Path) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.machines: list[dict[str, Any]] = []
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if "machine" in line:
                self.machines.append(line["machine"])
                if line["machine"].get("rough"):
                    raise ValueError(f"{path} has rows of a quick run, which mean nothing")
            elif "case" in line:
                self.rows[line["case"], line["beside"]] = line

    def timed(self, case: str, beside: str) -> Row | None:
        """Return a row that has figures."""
        row = self.rows.get((case, beside))
        return row if row is not None and row["status"] == "ok" else None


def machine_line(machine: dict[str, Any]) -> str:
    """Return one sentence with the hardware and the versions."""
    versions = machine["versions"]
    name = machine.get("card", {}).get("name")
    parts = [
        *([name] if name else []),
        f"{machine['cpu']}, {machine['cores']} cores ({machine['simd'] or 'no native code'})",
        f"Python {versions['python']}", f"torch {versions['torch']}", f"NumPy {versions['numpy']}",
        machine["compiler"],
    ]  # fmt: skip
    return f"{', '.join(parts)}; {machine['date']}."


def ratio(row: Row) -> str:
    """Return how many times faster than the contender, bold where it is."""
    text = times(row["ratio"])
    return f"**{text}**" if row["ratio"] >= 1 else text


def cells(result: Result, case: str, beside: str) -> tuple[str, ...]:
    """Fastseed, the contender and what a reader has to know of it, its time, ratio."""
    row = result.timed(case, beside)
    if row is None:
        us = result.rows.get((case, beside), {}).get("us")
        return duration(us * 1e-6) if us else "", beside, "", ""
    ours, theirs = (duration(row[name] * 1e-6) for name in ("us", "beside_us"))
    known = filter(None, ("busy" if busy(row) else "", row.get("note", "")))
    return ours, beside + "".join(f" ({word})" for word in known), theirs, ratio(row)


def contenders(device: str) -> Iterator[tuple[Case, str]]:
    """Yield each case of a device with each of its contenders, by subject."""
    for case in all_cases():
        if device in case.devices:
            yield from ((case, beside) for beside in case.beside)


def table(rows: Sequence[Sequence[str]], words: tuple[str, ...]) -> str:
    """Return rows as a table of Markdown: the head first, whose ``words`` head no figures."""
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    align = (":--" if cell in words else "--:" for cell in rows[0])
    return "\n".join([lines[0], f"|{'|'.join(align)}|", *lines[1:]])


def page(result: Result, others: Sequence[Result], device: str) -> str:
    """Return the machines, the table with a row for each contender, and which have no figures."""
    more = (f"CPU {number}" for number in range(2, 2 + len(others)))
    rows: list[Sequence[str]] = [("case", "fastseed", "beside", "its time", "ratio", *more)]
    last, missing = "", []
    for case, beside in contenders(device):
        name = case.name(device)
        ours, *rest = cells(result, name, beside)
        if ours:
            found = (other.timed(name, beside) for other in others)
            ratios = (ratio(row) if row else "" for row in found)
            rows.append(("" if name == last else name, ours, *rest, *ratios))
            last = name
        else:
            reason = result.rows.get((name, beside), {"reason": NOT_MEASURED})["reason"]
            missing.append(f"`{name}` beside {beside}" + f" ({reason})" * (reason != NOT_MEASURED))
    machines = (
        f"CPU {number}: {machine_line(machine)}"
        for number, one in enumerate((result, *others), 1)
        for machine in one.machines
    )
    parts = ["  \n".join(machines) + f" {BUSY_MARK}", table(rows, ("case", "beside"))]
    if missing:
        parts.append(f"{NOT_MEASURED.capitalize()}: {', '.join(missing)}.")
    return "\n\n".join(parts)


def summary(result: Result, device: str) -> str:
    """Return the machine, and what a reader would ask for in words, with gains and losses."""
    rows = [("", "fastseed", "instead of", "ratio")]
    for words, case, beside, theirs in SUMMARY:
        if (row := result.timed(case.format(device), beside)) is not None:
            ours, other = (duration(row[name] * 1e-6) for name in ("us", "beside_us"))
            busy_mark = " (busy)" if busy(row) else ""
            rows.append((words, ours, f"{theirs}, {other}{busy_mark}", ratio(row)))
    machine = result.machines[0]
    head = (
        f"{machine['cpu']}, {machine['cores']} cores, torch {machine['versions']['torch']}, "
        f"{machine['date']}."
    )
    if any("(busy)" in row[2] for row in rows):
        head += f" {BUSY_MARK}"
    return f"{head}\n\n{table(rows, ('', 'instead of'))}"


def rewrite(file: Path, inner: str) -> None:
    """Replace the text between the markers of a file; ValueError unless there is one pair."""
    text = file.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"{file} must have one {BEGIN} and after it one {END}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    file.write_text(f"{before}{BEGIN}\n{inner}\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 1 if a file has no markers or a result no figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("others", type=Path, nargs="*", metavar="OTHER.jsonl")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--readme", type=Path, help="write the summary between its markers")
    parser.add_argument("--page", type=Path, help="write all rows between its markers")
    options = parser.parse_args(arguments)
    try:
        result, *others = map(Result, (options.file, *options.others))
        if options.readme is not None:
            rewrite(options.readme, summary(result, options.device))
        if options.page is not None:
            rewrite(options.page, page(result, others, options.device))
        if options.readme is None and options.page is None:
            print(page(result, others, options.device))
    except ValueError as error:
        print(f"benchmarks.report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
