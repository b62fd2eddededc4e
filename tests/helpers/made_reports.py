"""Reports that no training made: the cases that the writers of reports have to stand."""

from __future__ import annotations

import math
import struct
from dataclasses import fields, is_dataclass, replace

import numpy as np

from fastseed.tools.verify.result import (
    EXPERIMENTS,
    Band,
    Check,
    Curve,
    Difference,
    Finding,
    Interval,
    Paired,
    Report,
    Run,
)

T95, T99 = 2.365, 3.499  # Student's t with 7 degrees of freedom


def losses(n: int, seed: int) -> np.ndarray:
    noise = np.random.Generator(np.random.Philox(seed)).normal(size=n)
    return 2.3 * np.exp(-np.arange(n) / (n / 3 + 1)) + 0.15 + 0.04 * noise


def a_run(experiment: str, number: int, steps, values) -> Run:
    return Run(
        name=f"{experiment}-{number}",
        experiment=experiment,
        number=number,
        command=("python", "train.py", "--seed", "7", "--epochs", "4"),
        seconds=1.25 + number / 8,
        folder=f"runs/{experiment}-{number}",
        curve=Curve(tuple(steps), np.asarray(values, np.float64)),
    )


def all_runs(count: int, n: int, differing: bool = False) -> list[Run]:
    """``count`` runs of each experiment, of ``n`` steps; the seeded ones equal or nearly so."""
    names = [f"{i * 4 // n}/{i}" for i in range(n)]
    found = []
    for experiment in EXPERIMENTS:
        part = {"half": slice(0, n // 2), "resumed": slice(n // 2, n)}.get(experiment, slice(n))
        for k in range(count):
            values = losses(n, 100 + k if experiment == "unseeded" else 7)
            if differing and experiment != "unseeded":
                values = values + 0.5 * (losses(n, 500 + k) - losses(n, 499)) * (k % 3) / 2
            if differing and experiment == "resumed":
                values = values + 0.03
            found.append(a_run(experiment, k, names[part], values[part]))
    return found


def a_band(runs: list[Run]) -> Band:
    values = np.array([run.curve.values for run in runs])
    spread = len(runs) > 1 and (values != values[0]).any()
    std = values.std(axis=0, ddof=1) if spread else np.zeros(values.shape[1])
    return Band(len(runs), runs[0].curve.steps, values.mean(axis=0), std)


def a_pair(a: list[Run], b: list[np.ndarray], name: str) -> Paired:
    values = np.array(b) - np.array([run.curve.values for run in a])
    mean, n = values.mean(axis=0), len(values)
    if n < 2:
        nothing = (None,) * 4
        overall = float(values.mean())
        return Paired("whole", name, n, a[0].curve.steps, mean, *nothing, overall, None, None, 1.0)
    wide = values.std(axis=0, ddof=1) / math.sqrt(n)
    each = values.mean(axis=1)
    at, spread = float(each.mean()), float(each.std(ddof=1)) / math.sqrt(n)
    return Paired(
        a="whole",
        b=name,
        pairs=n,
        steps=a[0].curve.steps,
        mean=mean,
        low95=mean - T95 * wide,
        high95=mean + T95 * wide,
        low99=mean - T99 * wide,
        high99=mean + T99 * wide,
        overall=at,
        interval95=Interval(at - T95 * spread, at + T95 * spread),
        interval99=Interval(at - T99 * spread, at + T99 * spread),
        correlation=0.98765,
    )


def some_findings() -> tuple[Finding, ...]:
    return (
        Finding("resume", True, "the resumed runs differ from their first step", "step 2/100",
                "save fastseed.state_dict() with the checkpoint, and load it"),
        Finding("generator", False, "a generator is made without a seed", "train.py:41",
                "rng = fastseed.numpy_generator('augment')"),
        Finding("environment", True, "LD_PRELOAD differs between two runs"),
    )  # fmt: skip


def some_checks(differing: bool, runs: int, control: bool) -> tuple[Check, ...]:
    parted = (
        Difference("whole-0", "whole-1", "0/17", 1.9281726, 1.9281729, 183, 200),
        Difference("whole-0", "whole-3", None, None, 0.5, 0, 200),
    )
    resumed = Difference("whole-0", "resumed-0", "2/100", 0.5, 0.53, 100, 100)
    return (
        Check("repeat", "runs of the same seed repeat", not differing if runs > 1 else None,
              not differing, "7 of 7 pairs differ" if differing else "all pairs are equal",
              parted if differing else (), runs - 1),
        Check("prefix", "half a run begins as a whole one", True, True, "equal", (), runs),
        Check("resume", "a resumed run goes on as the whole one", not differing, not differing,
              "they part at step 2/100" if differing else "equal", (resumed,) * differing, runs),
        Check("control", "runs without a seed differ", True if control else None, False,
              "they differ" if control else "not asked"),
    )  # fmt: skip


def make(*, count: int = 8, n: int = 200, differing: bool = False, unseeded: bool = True) -> Report:
    """A report of ``count`` runs of ``n`` steps an experiment."""
    runs = all_runs(count, n, differing)
    if not unseeded:
        runs = [run for run in runs if run.experiment != "unseeded"]
    of = {name: [run for run in runs if run.experiment == name] for name in EXPERIMENTS}
    joined = [
        np.concatenate([h.curve.values, r.curve.values])
        for h, r in zip(of["half"], of["resumed"], strict=True)
    ]
    paired = [a_pair(of["whole"], joined, "resumed")]
    if unseeded:
        paired.append(a_pair(of["whole"], [r.curve.values for r in of["unseeded"]], "unseeded"))
    row = (
        "critical",
        "preload/LD_PRELOAD",
        "changed",
        None,
        "/lib/libjemalloc.so",
        "may interpose",
    )
    return Report(
        passed=not differing,
        verdict="not reproducible" if differing else "bit-identical",
        required="bit-identical",
        says="the runs part at step 0/17" if differing else "every seeded run is the same",
        runs=tuple(runs),
        checks=some_checks(differing, count, unseeded),
        findings=some_findings() if differing else (),
        bands={name: a_band(many) for name, many in of.items() if many},
        paired=tuple(paired),
        variance_ratio=(0.0123 if differing else 0.0) if unseeded else None,
        environment=(row,) if differing else (),
        plan={"command": ["python", "train.py", "--seed", "{seed}"], "epochs": 4, "runs": count,
              "seed": 7, "timeout": None, "tolerance": 1e-6},
        seconds=sum(run.seconds for run in runs),
        versions={"python": "3.11.2", "torch": "2.13.0", "numpy": "2.4.6", "fastseed": "0.1.0"},
        notes=("the log writes 6 digits",) if differing else (),
    )  # fmt: skip


def with_values(report: Report, name: str, values) -> Report:
    """``report`` with the losses of one run replaced."""
    runs = tuple(
        replace(run, curve=replace(run.curve, values=np.asarray(values, np.float64)))
        if run.name == name
        else run
        for run in report.runs
    )
    return replace(report, runs=runs)


def broken() -> Report:
    """Losses that are not finite, in the runs as in what was computed from them."""
    report = make(differing=True)
    values = report.of("whole")[1].curve.values.copy()
    values[60:] = np.nan
    values[50], values[51] = np.inf, -np.inf
    report = with_values(report, "whole-1", values)
    band = report.bands["whole"]
    mean, std = band.mean.copy(), band.std.copy()
    mean[50:], std[50:] = np.nan, np.nan
    paired = replace(report.paired[0], overall=math.nan, correlation=None)
    return replace(
        report,
        bands={**report.bands, "whole": replace(band, mean=mean, std=std)},
        paired=(paired, *report.paired[1:]),
        variance_ratio=math.inf,
    )


CASES = {
    "identical": make,
    "differing": lambda: make(differing=True),
    "single": lambda: make(count=1),
    "uncontrolled": lambda: make(unseeded=False),
    "broken": broken,
    "one-step": lambda: make(n=2, count=2),
    "nothing": lambda: replace(
        make(), runs=(), checks=(), bands={}, paired=(), variance_ratio=None, plan={}, versions={}
    ),
}


def same(a, b) -> bool:
    """Whether two reports are equal in type and in every bit, NaNs too."""
    if type(a) is not type(b) and not (isinstance(a, tuple) and isinstance(b, tuple)):
        return False
    if is_dataclass(a):
        return all(same(getattr(a, one.name), getattr(b, one.name)) for one in fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


ATTACKS = (
    "<script>window.canary = 1</script>",
    "<img src=x onerror=\"window.canary = 2\">",
    "\" onmouseover=\"window.canary = 3\" autofocus onfocus=\"window.canary = 4\" x=\"",
    "'><svg onload='window.canary = 5'>",
    "</title></style></table></td></pre></code><script>window.canary = 6</script>",
    "{{ 7 * 7 }}{% for x in range(9) %}<script>window.canary = 7</script>{% endfor %}",
    "<!--<script>window.canary = 8</script>-->]]>",
    "\u202e<script>window.canary = 9</script>\u2066\x1b[31m\x00",
    "<link rel=stylesheet href=http://192.0.2.1/x.css><style>body{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=http://192.0.2.1/'><base href=http://192.0.2.1/>",
)  # fmt: skip


def planted() -> Report:
    """A report in which every text that may come from outside is an attack on the page."""
    bad, i = ATTACKS, iter(range(10**6))

    def one() -> str:
        return bad[next(i) % len(bad)]

    base = make(differing=True, n=20)
    runs = tuple(
        replace(
            run,
            name=f"{run.name}{one()}",
            folder=one(),
            command=("python", one(), one()),
            curve=replace(run.curve, steps=tuple(f"{step}{one()}" for step in run.curve.steps)),
        )
        for run in base.runs
    )
    parted = tuple(Difference(one(), one(), one(), 0.5, 0.25, 1, 2) for _ in bad)
    bands = {
        name: replace(band, steps=tuple(f"{step}{one()}" for step in band.steps))
        for name, band in base.bands.items()
    }
    return replace(
        base,
        verdict=bad[0],
        required=one(),
        says=bad[1] + bad[2],
        runs=runs,
        checks=tuple(
            Check(one(), one(), passed, False, one(), parted, 3) for passed in (True, False, None)
        ),
        findings=tuple(Finding(one(), True, text, one(), one()) for text in bad),
        bands=bands,
        paired=tuple(replace(pair, a=one(), b=one()) for pair in base.paired),
        environment=tuple(("high", text, "changed", one(), {"x": [one()]}, one()) for text in bad),
        plan={text: [one()] for text in bad},
        versions={text: one() for text in bad},
        notes=bad,
    )  # fmt: skip
