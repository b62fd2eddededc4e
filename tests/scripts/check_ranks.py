"""One rank of two whose job `fastseed check` examines, three times: see the cases below.

``check_ranks.py FOLDER``: what the command printed and ended with goes to ``FOLDER/<rank>.json``.
``check_ranks.py FOLDER CASE`` is the script that it examines, in the same process.
"""

import contextlib
import io
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import fastseed
from fastseed import cli

RANK = int(os.environ["RANK"])
CASES = ("no init", "agree", "another epoch")


def job(case):
    if case != "no init" or RANK == 0:
        fastseed.init(42)  # in that case before there is a group, whose ranks would all have to
        fastseed.reseed(1, RANK if case == "another epoch" else 0)
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))


def examined(case):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main(["check", "--json", __file__, sys.argv[1], case])
    return code, [row for row in json.loads(printed.getvalue())["rows"] if row["topic"] == "ranks"]


def main():
    found = {case: examined(case) for case in CASES}
    Path(sys.argv[1], f"{RANK}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # threads of gloo may abort an interpreter that ends in good order


if len(sys.argv) > 2:
    job(sys.argv[2])
else:
    main()
