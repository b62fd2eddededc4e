"""`fastseed completion SHELL`: a script that completes `fastseed` in a shell."""

from __future__ import annotations

import argparse
from typing import Any

from . import exit_codes

SHELLS = ("bash", "zsh", "tcsh")

INSTALL = """\
to install:
  bash   fastseed completion bash > ~/.local/share/bash-completion/completions/fastseed
  zsh    fastseed completion zsh > ~/.zfunc/_fastseed     (~/.zfunc in fpath, before compinit)
  tcsh   fastseed completion tcsh > ~/.fastseed.csh       (and `source` it)
"""


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print the script that completes fastseed in a shell",
        description="Print a shell's completion script (needs the extra: fastseed[completion]).",
        epilog=INSTALL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ImportError(
            'fastseed completion: needs shtab: pip install "fastseed[completion]"'
        ) from error
    print(shtab.complete(args.whole(), shell=args.shell))
    return exit_codes.OK
