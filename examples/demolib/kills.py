"""What the examples share that stop or kill a job and compare it with an uninterrupted one."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any


def parser(description: str, out: str, kills: int | None = 20) -> argparse.ArgumentParser:
    """Return the options that all have. SIGTERM ends the program so that nothing is left behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = argparse.ArgumentParser(description=description)
    if kills is not None:
        found.add_argument("--kills", type=int, default=kills, help="by SIGKILL")
        found.add_argument("--chaos-seed", type=int, default=1, help="decides who is killed, when")
    found.add_argument("--seed", type=int, default=1234, help="master seed of the training")
    found.add_argument("--out", type=Path, default=Path(__file__).parents[2] / out)
    return found


def empty_folder(folder: Path) -> Path:
    """Return the folder, with nothing in it."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def conclude(out: Path, figures: dict[str, Any], holds: bool) -> int:
    """Print and write what came out, and return the exit status."""
    print(*(f"{name.replace('_', ' '):>20}: {value}" for name, value in figures.items()), sep="\n")
    (out / "results.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print("VERDICT:", "as without interruption, bit for bit" if holds else "DIFFERENT")
    return 0 if holds else 1
