"""`fastseed env capture|show|diff`: what a run stood on."""

from __future__ import annotations

import argparse
from typing import Any

from . import exits


def add(subparsers: Any) -> None:
    subparsers.add_parser("env", help="capture, show and compare what a run stood on")


def run(args: argparse.Namespace) -> int:
    return exits.OK
