"""`fastseed completion SHELL`: the script that completes `fastseed` in a shell."""

from __future__ import annotations

import argparse
from typing import Any

from . import exit_codes

SHELLS = ("bash", "zsh", "tcsh")

_INSTALL = """\
to install:
  bash   fastseed completion bash > ~/.local/share/bash-completion/completions/fastseed
  zsh    fastseed completion zsh > ~/.zfunc/_fastseed     (~/.zfunc in fpath, before compinit)
  tcsh   fastseed completion tcsh > ~/.fastseed.csh       (and `source` it)
"""


def add(subparsers: Any) -> None:
    """Add the parser of this subcommand."""
    parser = subparsers.add_parser(
        "completion",
        help="print the script that completes fastseed in a shell",
        description="Print a shell's completion script (needs the extra: fastseed[completion]).",
        epilog=_INSTALL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        message = 'fastseed completion: needs shtab: pip install "fastseed[completion]"'
        raise ImportError(message) from error
    print(shtab.complete(args.whole(), shell=args.shell))
    return exit_codes.OK
