"""``python -m benchmarks.gpu --out DIR``: everything that one run on a GPU can say, in ten minutes.

In this order, each stage with a limit of its own; one that fails or runs out of time is named, and
the next one runs: environment (builds what was not brought), native programs, tests on the device,
compute-sanitizer, bits and times of every kernel and case, the rest of the tests. DIR has what each
stage found as soon as it ended, six files: summary.txt, which ends in the table, log.txt,
rows.jsonl, and pytest's reports.

Needs a CUDA build of torch, nvcc, ninja and pytest, and no package index.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import programs, stages


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=540, help="for everything (540)")
    parser.add_argument("--programs", type=Path, default=programs.FOLDER, metavar="DIR",
                        help="what benchmarks.gpu.prepare has built (build/gpu)")  # fmt: skip
    parser.add_argument("--rehearse", action="store_true",
                        help="bits and times on the CPU: all the logic, and no figure")  # fmt: skip
    return parser.parse_args()


def main() -> int:
    """0 where every stage passed and all bits are equal, else 1."""
    options = parse()
    run = stages.Run(options.out.resolve(), options.seconds, options.programs.resolve())
    if options.rehearse:
        run.environment(rehearse=True)
        run.times(rehearse=True)
    else:
        run.environment()
        run.native_programs()
        run.tests("tests", "fast", "not 31 and not large", 120)
        run.sanitizer()
        run.times()
        run.tests("rest", "slow", "", 90)
        run.tests("large", "fast", "31 or large", 60)
    run.write(run.summary(options.rehearse))
    return int(run.failed())


if __name__ == "__main__":
    sys.exit(main())
