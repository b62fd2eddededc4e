"""``python -m benchmarks.compare_checkouts OLD NEW``: which cases are slower than before?

Each case runs in processes of the old and the new checkout in turns. A round is one process of
each, and gives one ratio of their medians; the row has the median of the ratios, and their range.
A case of a name that only one checkout has is listed. ``--rename old=new`` pairs two names.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_checkouts")
    parser.add_argument("old", type=Path, help="a checkout, built")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="of the case's name")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each checkout")
    parser.add_argument("--limit", type=float, default=1.05, help="new / old that is too slow")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--quick", action="store_true", help="a rough look")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the ratios here")
    return parser.parse_args(arguments)


def python_of(checkout: Path) -> str:
    """Return the interpreter of a checkout's own environment, else this one."""
    own = checkout / ".venv" / "bin" / "python"
    return os.fspath(own) if own.exists() else sys.executable


def names_of(checkout: Path) -> list[str]:
    """Return the cases of a checkout, as ``--list`` prints them."""
    command = [python_of(checkout), "-m", "benchmarks", "--list"]
    return subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def seconds_of(checkout: Path, case: str, quick: bool) -> float | None:
    """Return the median time of a case in a new process; None if it cannot run there."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        command = [python_of(checkout), "-m", "benchmarks", "--only", case, "--out", os.fspath(out)]
        subprocess.run(
            [*command, *(["--quick"] if quick else [])],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": os.fspath(checkout)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        rows = json.loads(out.read_text())["cases"] if out.exists() else []
    found = [row for row in rows if f"{row['name']} vs {row['against']}" == case]
    return found[0]["fastseed"]["median_s"] if found and found[0]["status"] == "ok" else None


def compare(old: Path, new: Path, pair: tuple[str, str], rounds: int, quick: bool) -> list[float]:
    """Return new / old of each round; the two take turns in going first."""
    ratios = []
    for number in range(rounds):
        sides = [(old, pair[0]), (new, pair[1])]
        if number % 2:
            sides.reverse()
        times = [seconds_of(checkout, case, quick) for checkout, case in sides]
        if number % 2:
            times.reverse()
        before, after = times
        if before is None or after is None:
            return []
        ratios.append(after / before)
    return ratios


def main(arguments: list[str] | None = None) -> int:
    """0, or 1 if a case is slower than the limit."""
    options = parse(arguments)
    renamed = dict(text.split("=", 1) for text in options.rename)
    before = {renamed.get(name, name): name for name in names_of(options.old)}
    after = [name for name in names_of(options.new) if options.only in name]
    result: dict[str, list[float]] = {}
    slower = []
    for case in after:
        if case not in before:
            print(f"only new  {case}")
            continue
        pair = before[case], case
        ratios = compare(options.old, options.new, pair, options.rounds, options.quick)
        result[case] = ratios
        if not ratios:
            print(f"not run   {case}")
            continue
        middle = statistics.median(ratios)
        is_slower = middle > options.limit
        slower += [case] * is_slower
        mark = "SLOWER" if is_slower else "      "
        print(f"{middle:5.2f} x {mark} {case}  [{min(ratios):.2f}, {max(ratios):.2f}]", flush=True)
    for case in sorted(name for name in before if options.only in name and name not in after):
        print(f"only old  {before[case]}")
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(slower)} of {len(result)} cases are more than {options.limit:g} x as slow")
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
