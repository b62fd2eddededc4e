"""`fastseed check`: what a program seeds and what it does not."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from . import exit_codes, output

ABOUT = """\
Run a program in this process as __main__ and print at its end, or after Ctrl-C, what is seeded,
what is not, which unregistered generators were used, which calls seeded a default generator, and
what to do. The program draws the same numbers as without fastseed check. Ranks that torchrun has
started print one table. If the program leaves a process group of several ranks, they also check
that they agree.
"""
_PATIENCE = 60.0  # seconds in which all ranks of torchrun have to end their programs


class _Enough(BaseException):
    """Ends a program after ``--steps``; not an Exception, which programs catch."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "fastseed check [--json] [--all] [--steps N] [SCRIPT ... | -m MODULE ...]"
    parser.add_argument("--steps", type=int, metavar="N", help="end it after N optimizer steps")
    output.add_program(parser)


def run(args: argparse.Namespace) -> int:
    words = output.program_of(args)
    if not args.module and not os.path.isfile(words[0]):
        raise exit_codes.Exit(f"fastseed check: PROGRAM must be a file, got {words[0]!r}")
    if args.steps is not None and args.steps < 1:
        raise exit_codes.Exit(f"fastseed check: --steps must be at least 1, got {args.steps}")
    from ..debug import checkup, generator_use, hashed_seeds

    names: dict[str, object] = {}  # kept until the examination, since they hold generators
    with generator_use.watched_use() as used, _limited(args.steps):
        code, failed = _run(words, args.module, names)
    hashed = hashed_seeds.hashed_seeds(None if args.module else words[0])
    rows = [*checkup.examine(module=None, ranks=None), *used, *hashed]
    if code == exit_codes.OK and any(row.status == generator_use.WRONG for row in rows):
        code = exit_codes.FOUND
    # A rank that failed ends at once, so that torchrun ends the others.
    if failed is None and (together := _of_all_ranks([[*row] for row in rows], code)) is not None:
        rows, code = together
    if rows or failed:
        output.emit({"rows": rows, "program": failed})
        output.table(("topic", "item", "", "detail"), rows, limit=args.limit)
    if failed:
        output.say(f"the program ended with: {failed}", error=True)
    return code


@contextlib.contextmanager
def _limited(steps: int | None) -> Iterator[None]:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    done = 0

    def stepped(*_: object) -> None:
        nonlocal done
        done += 1
        if done == steps:
            raise _Enough

    handle = register_optimizer_step_post_hook(stepped)
    try:
        yield
    finally:
        handle.remove()


def _run(words: list[str], is_module: bool, names: dict[str, object]) -> tuple[int, str | None]:
    """Run a program as `python` does, with globals ``names``; return exit code and failure."""
    before = sys.argv, sys.path[:]
    sys.argv = list(words)
    folder = "" if is_module else os.path.dirname(os.path.abspath(words[0]))
    sys.path.insert(0, folder or os.getcwd())
    failed = None  # what it would have done afterwards is unknown
    try:
        with contextlib.redirect_stdout(sys.stderr if output.json_only else sys.stdout):
            if is_module:
                names |= runpy.run_module(words[0], run_name="__main__", alter_sys=True)
            else:
                names |= runpy.run_path(words[0], run_name="__main__")
    except _Enough:
        pass
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED, "Ctrl-C"
    except SystemExit as end:
        if end.code not in (None, 0):
            failed = f"exit code {end.code}" if isinstance(end.code, int) else str(end.code)
    except Exception as error:
        traceback.print_exception(error)
        failed = f"{type(error).__name__}: {error}"
    finally:
        sys.argv, sys.path[:] = before
    return exit_codes.OK if failed is None else exit_codes.UNAVAILABLE, failed


def _of_all_ranks(rows: list[Any], code: int) -> tuple[list[Any], int] | None:
    """Return the rows of all ranks on rank 0, none on the others, and one exit code.

    They meet in torchrun's store, if there is one: a program may have closed its process group.
    """
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size == 1 or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    import torch.distributed as dist

    rank, patience = int(os.environ["RANK"]), timedelta(seconds=_PATIENCE)
    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    agent = dist.TCPStore(*where, is_master=False, timeout=patience)  # type: ignore[attr-defined]
    store = dist.distributed_c10d.PrefixStore(f"fastseed.check/{attempt}", agent)
    store.set(str(rank), json.dumps([code, rows]))
    if rank > 0:
        with contextlib.suppress(dist.DistStoreError):
            code = int(store.get("code"))
        return [], code
    found: dict[int, list[Any]] = {}
    with contextlib.suppress(dist.DistStoreError):
        for other in range(size):
            code_of, found[other] = json.loads(store.get(str(other)))
            code = max(code, code_of)
    store.set("code", str(code))
    return _merged(found, size), code


def _merged(found: dict[int, list[Any]], size: int) -> list[Any]:
    """Return the rows of rank 0, and what others have that is worth knowing, with their ranks."""
    from ..debug.generator_use import FINE, WRONG, Row
    from ..distributed.rendezvous import name_ranks

    holders: dict[Row, list[int]] = {}
    for rank, rows in found.items():
        for row in (Row(*one) for one in rows):
            if rank == 0 or row.status != FINE or row.topic == "job":
                holders.setdefault(row, []).append(rank)
    merged = []
    for row, ranks in holders.items():
        if len(ranks) == size or (row.status == FINE and 0 in ranks):
            merged.append(row)
        elif row.status != FINE:
            merged.append(row._replace(item=f"{name_ranks(ranks)}: {row.item}"))
    seeds = {row.item for row in holders if row.item.startswith("master seed")}
    if len(seeds) > 1:  # else verify_agreement says so, where a process group is left
        detail = f"differ: {', '.join(sorted(seeds))}; pass the same to init"
        merged.append(Row("ranks", "master seeds", WRONG, detail))
    if missing := [rank for rank in range(size) if rank not in found]:
        detail = f"did not end within {_PATIENCE:g} seconds of rank 0"
        merged.append(Row("ranks", name_ranks(missing), WRONG, detail))
    return merged
