"""Draw ``derivation.svg``: how a master seed becomes the state of a generator.

python docs/figures/derivation.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

LEVELS = [
    ("master seed", "64 bits", None),
    ("scope", "128 bits", "task, epoch, step"),
    ("name key", "128 bits", "name: SHA-256, 128 bits"),
    ("key of a stream", "128 bits", "rank, worker, index, domain"),
]
GENERATORS = [
    ("random", "seed(key)"),
    ("NumPy, torch CPU", "624 words"),
    ("numpy Generator", "SeedSequence(key)"),
    ("torch CUDA", "seed, offset 0"),
    ("fastseed.random", "the key itself"),
]
COLUMN = 2.6
FILL, LINE, TEXT = "#eef2fb", "#3f51b5", "#1d2433"


def box(axes, x, y, width, title, below):
    """Draw one rounded box with two lines of text."""
    shape = FancyBboxPatch((x - width / 2, y - 0.32), width, 0.64, boxstyle="round,pad=0.04",
                           facecolor=FILL, edgecolor=LINE)  # fmt: skip
    axes.add_patch(shape)
    axes.text(x, y + 0.1, title, ha="center", va="center", color=TEXT, weight="bold", size=9)
    axes.text(x, y - 0.15, below, ha="center", va="center", color=TEXT, size=8)


def arrow(axes, start, end):
    """Draw an arrow between two points."""
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": LINE})


def main() -> None:
    """Write the figure beside this script."""
    plt.rcParams.update({"svg.hashsalt": "fastseed"})
    figure, axes = plt.subplots(figsize=(10.4, 4.0))
    xs = [COLUMN * i for i in range(len(LEVELS))]
    for x, (title, bits, _) in zip(xs, LEVELS, strict=True):
        box(axes, x, 1.4, 1.9, title, bits)
    for before, x, (_, _, given) in zip(xs, xs[1:], LEVELS[1:], strict=False):
        arrow(axes, (before + 1.0, 1.4), (x - 1.0, 1.4))
        middle = (before + x) / 2
        axes.text(middle, 2.2, given, ha="center", color=TEXT, size=9)
        arrow(axes, (middle, 2.13), (middle, 1.48))
    step = xs[-1] / (len(GENERATORS) - 1)
    for i, (title, state) in enumerate(GENERATORS):
        arrow(axes, (xs[-1], 1.03), (step * i, 0.4))
        box(axes, step * i, 0.0, 1.75, title, state)
    axes.set(xlim=(-1.1, xs[-1] + 1.1), ylim=(-0.5, 2.5))
    axes.set_axis_off()
    out = Path(__file__).with_suffix(".svg")
    figure.savefig(out, bbox_inches="tight", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
