"""Reports of made-up runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastseed.tools.verify import EXPERIMENTS, comparison
from fastseed.tools.verify.result import Curve, Finding, Report, Run


def losses(n: int, seed: int) -> np.ndarray:
    noise = np.random.Generator(np.random.Philox(seed)).normal(size=n)
    return 2.3 * np.exp(-np.arange(n) / (n / 3 + 1)) + 0.15 + 0.04 * noise


def made_runs(count: int, n: int, differing: bool) -> list[Run]:
    """Return ``count`` runs of each experiment, of ``n`` steps; seeded ones differ by number."""
    names = np.array([f"{i * 4 // n}/{i}" for i in range(n)])
    found = []
    for experiment in EXPERIMENTS:
        part = {"truncated": slice(n // 2), "resumed": slice(n // 2, n)}.get(experiment, slice(n))
        for k in range(count):
            values = losses(n, 100 + k if experiment == "unseeded" else 7 + k * differing)
            command = ("python", "train.py", "--seed", "7", "--epochs", "4")
            curve = Curve(names[part], values[part])
            folder = f"runs/{experiment}-{k}"
            found.append(Run(f"{experiment}-{k}", experiment, k, command, 1.25, folder, curve))
    return found


def with_values(runs: list[Run], name: str, values) -> list[Run]:
    """Return ``runs`` with the losses of one replaced."""
    curve = {run.name: replace(run.curve, values=np.asarray(values, np.float64)) for run in runs}
    return [replace(run, curve=curve[name]) if run.name == name else run for run in runs]


def report_of(runs: list[Run], **fields) -> Report:
    """Return the report of ``runs``; ``fields`` replace some of its fields."""
    checks = comparison.check_all(runs, [])
    names = dict.fromkeys(run.experiment for run in runs)
    bands = {name: comparison.band([r for r in runs if r.experiment == name]) for name in names}
    verdict, summary = comparison.conclude(checks)
    made = Report(
        verdict=verdict,
        summary=summary,
        runs=tuple(runs),
        checks=checks,
        findings=(),
        bands=bands,
        environment=(),
        options={"command": ["python", "train.py", "--seed", "{seed}"], "timeout": None},
        versions={"python": "3.11.2", "torch": "2.13.0"},
        notes=tuple(comparison.notes_about(runs)),
    )
    return replace(made, **fields)


def passing(count: int = 3, n: int = 40) -> Report:
    return report_of(made_runs(count, n, False))


def failing(count: int = 3, n: int = 40) -> Report:
    """Return a report with findings, and losses that are not finite."""
    values = losses(n, 8)
    values[[5, 6, 7]] = np.nan, np.inf, -np.inf
    findings = (
        Finding("resume", True, "the resumed runs differ", "step 2/30", "save state_dict()"),
        Finding("generator", False, "a generator is created without a seed", "train.py:41"),
    )
    row = ("critical", "preload/LD_PRELOAD", "changed", None, "/lib/x.so", "may interpose")
    runs = with_values(made_runs(count, n, True), "uninterrupted-1", values)
    return report_of(runs, findings=findings, environment=(row,))


ATTACKS = (
    "<script>window.canary = 1</script>",
    "\" onmouseover=\"window.canary = 3\" autofocus onfocus=\"window.canary = 4\" x=\"",
    "</title></style></table></td><script>window.canary = 6</script>",
    "{{ 7 * 7 }}{% for x in range(9) %}<script>window.canary = 7</script>{% endfor %}",
    "<!--<link rel=stylesheet href=http://192.0.2.1/x.css>-->$x_1$\udc80",
)  # fmt: skip


def hostile() -> Report:
    """Return a report in which every text that a run can choose is an attack on the page."""
    runs = [
        replace(
            run,
            command=("python", *ATTACKS),
            folder=ATTACKS[0],
            curve=replace(run.curve, steps=np.char.add(run.curve.steps, ATTACKS[1])),
        )
        for run in made_runs(2, 10, True)
    ]
    return report_of(
        runs,
        verdict=ATTACKS[2],
        summary="".join(ATTACKS),
        findings=tuple(Finding("environment", True, text, text, text) for text in ATTACKS),
        environment=tuple(("high", text, "changed", text, {"x": text}, text) for text in ATTACKS),
        options={text: [text] for text in ATTACKS},
        versions={text: text for text in ATTACKS},
        notes=ATTACKS,
    )


CASES = {
    "passing": passing,
    "failing": failing,
    "single": lambda: report_of(made_runs(1, 2, False)),
    "no baseline": lambda: report_of(
        [run for run in made_runs(2, 8, False) if run.experiment != "unseeded"]
    ),
    "long": lambda: passing(2, 5000),
    "hostile": hostile,
}
