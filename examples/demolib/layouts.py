"""Compare what ``train_transformer_any_layout.py`` logged on different parallel layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

TITLES = {
    "fastseed": "weights and dropout from fastseed",
    "torch-init": "weights from torch, dropout from fastseed",
    "torch-dropout": "weights from fastseed, dropout from torch",
}
TOLERANCE = 1e-3  # of losses that differ by rounding alone


class Comparison(NamedTuple):
    """One source of random numbers on several layouts, the first of which is one process."""

    source: str
    logs: dict[str, dict[str, Any]]

    @staticmethod
    def read(folder: Path, source: str, names: list[str]) -> Comparison:
        logs = {n: json.loads((folder / f"{source}.{n}.json").read_text()) for n in names}
        return Comparison(source, logs)

    @property
    def first(self) -> dict[str, Any]:
        return next(iter(self.logs.values()))

    @property
    def same_weights(self) -> bool:
        return all(log["weights"] == self.first["weights"] for log in self.logs.values())

    @property
    def same_masks(self) -> bool:
        return all(log["masks"] == self.first["masks"] for log in self.logs.values())

    def differences(self, name: str) -> list[float]:
        """Return how far each loss is from that of one process."""
        pairs = zip(self.logs[name]["losses"], self.first["losses"], strict=True)
        return [abs(a - b) for a, b in pairs]

    @property
    def largest(self) -> float:
        return max(max(self.differences(name)) for name in self.logs)

    def holds(self) -> bool:
        """Return whether fastseed is the same on all layouts, or torch's own is not."""
        if self.source == "fastseed":
            close = all(d < TOLERANCE for name in self.logs for d in self.differences(name))
            return self.same_weights and self.same_masks and close  # NaN is close to nothing
        differs = not (self.same_weights and self.same_masks)
        return differs or "tp" not in self.logs  # on which both of torch's differ

    def __str__(self) -> str:
        steps = len(self.first["masks"])
        head = f"{'layout':14}{'weights':10}{'masks of one process':22}{'last loss':11}"
        lines = [f"\n{self.source}: {TITLES[self.source]}", f"{head}largest difference"]
        for name, log in self.logs.items():
            equal = sum(a == b for a, b in zip(log["masks"], self.first["masks"], strict=True))
            masks = f"at {equal} of {steps} steps"
            loss, largest = log["losses"][-1], max(self.differences(name))
            lines.append(f"{name:14}{log['weights'][:8]:10}{masks:22}{loss:<11.4f}{largest:.1e}")
        return "\n".join(lines)


def draw(comparisons: list[Comparison], path: Path) -> None:
    """Draw the losses, and how far each layout is from one process, step by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")  # no pyplot: needs no display
    losses, differences = figure.subplots(1, 2)
    colours = dict(zip(TITLES, ("#2171b5", "#238b45", "#d94801"), strict=True))
    for comparison in reversed(comparisons):  # fastseed, whose layouts coincide, on top
        style = {"color": colours[comparison.source], "linewidth": 0.8}
        for name in comparison.logs:
            losses.plot(comparison.logs[name]["losses"], **style)
            differences.plot([d or float("nan") for d in comparison.differences(name)], **style)
        losses.lines[-1].set_label(TITLES[comparison.source])
    losses.set(xlabel="step", ylabel="loss", title=f"{len(comparisons[0].logs)} layouts")
    losses.legend(fontsize=8)
    title = "difference to the loss of one process, if not 0"
    differences.set(xlabel="step", yscale="log", title=title)
    for axes in (losses, differences):
        axes.grid(color="#e8e8e8", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
