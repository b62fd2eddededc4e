"""`fastseed checkpoint inspect|compare`: the states of random generators in checkpoints."""

from __future__ import annotations

import argparse

from . import exit_codes, output

_MOST = 10_000_000


def add(parser: argparse.ArgumentParser) -> None:
    """Describe this subcommand and add its two actions."""
    parser.description = (
        "Show and compare the states of random generators in checkpoints of "
        "Accelerate, transformers, Lightning, torch.distributed.checkpoint, Megatron and fastseed. "
        "Pickles are read as data; no code in them is run."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    one = actions.add_parser(
        "inspect",
        help="list the states of a checkpoint, and what is wrong with them",
        description="List the states of a checkpoint by rank and stream, and report ranks that "
        "draw the same numbers, states that are missing and files that cannot be read. "
        "Ends with 0 without such findings and with 1 otherwise.",
    )
    one.set_defaults(action=_inspect)
    one.add_argument("path", metavar="PATH", help="a file, or the folder of one checkpoint")

    two = actions.add_parser(
        "compare",
        help="compare the states of two checkpoints, in words drawn",
        description="Compare the states of two checkpoints, of the same or of two frameworks, in "
        "words drawn. Ends with 0 if all states are equal and with 1 otherwise.",
    )
    two.set_defaults(action=_compare)
    two.add_argument("a", metavar="A", help="a file, or the folder of one checkpoint")
    two.add_argument("b", metavar="B", help="the other one, such as the state after a resume")
    two.add_argument(
        "--most", type=int, default=_MOST, metavar="N",
        help=f"how many words apart states of one stream are found (default: {_MOST:,})",
    )  # fmt: skip
    for action in (one, two):
        output.add_all(action)
        output.add_json(action)


def run(args: argparse.Namespace) -> int:
    """Run one of the actions."""
    code: int = args.action(args)
    return code


def _inspect(args: argparse.Namespace) -> int:
    from ..tools import rng_states

    found = rng_states.inspect(args.path)
    code = exit_codes.OK if found else exit_codes.FOUND
    if args.json:
        states = [{**one._asdict(), "same_as": found.same_as(one)} for one in found.states]
        output.emit({**vars(found), "states": states})
        return code
    rows = [
        (one.owner or "all ranks", one.stream, ", ".join(found.same_as(one)) or "-", one.source)
        for one in found.states
    ]
    if rows:
        output.table(("rank", "stream", "equal to", "from"), rows, most=args.most)
    for line in found.findings:
        output.say(f"finding: {line}")
    for line in found.notes:
        output.say(f"note: {line}")
    owners = len({one.owner for one in found.states})
    output.say(f"{len(rows)} states of {owners} rank(s), {len(found.findings)} finding(s)")
    return code


def _compare(args: argparse.Namespace) -> int:
    from ..tools import rng_states

    found = rng_states.compare(args.a, args.b, most=args.most)
    if args.json:
        output.emit({"a": args.a, "b": args.b, "equal": not found, "differences": found})
    elif found:
        table = [(one.owner or "all ranks", one.stream, one.text) for one in found]
        output.table(("rank", "stream", "B, compared with A"), table, most=args.most)
        output.say(f"{len(found)} state(s) differ")
    else:
        output.say("all states are equal")
    return exit_codes.FOUND if found else exit_codes.OK
