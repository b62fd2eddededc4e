"""Draw ``same_weights_cost.svg``: bytes and seconds of a step over the number of ranks.

python docs/figures/same_weights_cost.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent
WAYS = (("fastseed", "SlotGradients", "#3f51b5", "o-"), ("ddp", "DDP, no_sync", "#b35c00", "s--"))
SLOTS = 8


def rows(name):
    """Return the rows of a result with 8 slots, by the number of ranks."""
    _, *every = map(json.loads, (RESULTS / name).read_text().splitlines())
    return sorted((row for row in every if row["slots"] == SLOTS), key=lambda row: row["ranks"])


def draw(axes, found, field, scale, **style):
    """Draw a line for each way."""
    for way, label, colour, line in WAYS:
        values = [row[way + field] * scale for row in found]
        axes.plot([row["ranks"] for row in found], values, line, color=colour, label=label, **style)
    axes.set_xlabel("ranks")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


def main() -> None:
    """Write the figure beside this script."""
    plt.rcParams.update({"svg.hashsalt": "fastseed", "font.size": 9})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 3.4))
    draw(left, rows("elastic_traffic.jsonl"), "_bytes", 1e-6)
    left.set(title="MB sent in a step by the rank that sends most\n10 million parameters, 8 slots")
    found = [row for row in rows("elastic_steps.jsonl") if row["samples"] == 4]
    draw(right, found, "_s", 1e3)
    right.set(
        title="milliseconds a step on 2 cores\n3.7 million parameters, 8 slots of 4 samples",
        xticks=[row["ranks"] for row in found],
    )
    figure.tight_layout()
    out = Path(__file__).with_suffix(".svg")
    figure.savefig(out, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
