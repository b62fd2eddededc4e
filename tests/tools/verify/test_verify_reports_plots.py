"""The picture: what is drawn where, and what it has to stand."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace

import numpy as np
import pytest
from helpers.made_reports import (
    CASES,
    T99,
    a_band,
    a_pair,
    a_run,
    broken,
    losses,
    make,
    with_values,
)
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from fastseed.tools.verify.reports import plots

PANELS = (
    "whole run",
    "first half",
    "resumed",
    "without a seed",
    "mean, and",
    "half and",
    "unseeded",
)


def drawn(report) -> dict[str, object]:
    """The panels of the picture, by the beginning of their titles."""
    figure = Figure(figsize=(12, 17))
    FigureCanvasAgg(figure)
    plots.draw(report, figure)
    found = {}
    for axes in figure.axes:
        title = axes.get_title(loc="left")
        found[next(name for name in PANELS if title.startswith(name))] = axes
    return found


def lines(axes, label: str) -> list:
    return [line for line in axes.lines if line.get_label() == label]


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("case", CASES)
def test_a_picture_of_every_case(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = plots.png(CASES[case]())
    image = Image.open(io.BytesIO(data))
    image.load()
    assert image.size == (1200, 1700) and image.format == "PNG"
    if case != "nothing":  # something is drawn: not a white sheet
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 100


def test_panels_of_four_experiments():
    report = make(differing=True)
    axes = drawn(report)
    assert list(axes) == list(PANELS)
    assert axes["whole run"].get_title(loc="left") == "whole run: 8 runs, they differ"
    assert drawn(make())["first half"].get_title(loc="left") == "first half: 8 runs, identical"
    assert drawn(make(count=1))["resumed"].get_title(loc="left").endswith("checkpoint: 1 run")
    four = [axes[name] for name in PANELS[:4]]
    assert len({one.get_xlim() for one in four}) == len({one.get_ylim() for one in four}) == 1
    for panel, experiment in zip(four, ("whole", "half", "resumed", "unseeded"), strict=True):
        many = [line for line in panel.lines if line.get_label() != "mean"]
        assert len(many) == 8
        for line, run in zip(many, report.of(experiment), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), run.curve.values)
        (mean,) = lines(panel, "mean")
        np.testing.assert_allclose(mean.get_ydata(), report.bands[experiment].mean, rtol=1e-12)


def test_resumed_runs_begin_where_the_half_ended():
    axes = drawn(make(n=20))
    assert axes["first half"].lines[0].get_xdata().tolist() == list(range(10))
    assert axes["resumed"].lines[0].get_xdata().tolist() == list(range(10, 20))


def test_steps_that_only_some_runs_have():
    runs = [
        a_run("whole", 0, ["a", "b", "c"], [1, 2, 3]),
        a_run("whole", 1, ["a", "c", "d"], [1, 5, 3]),
        a_run("resumed", 0, ["c", "e"], [3, 4]),
    ]
    report = replace(make(), runs=tuple(runs), bands={}, paired=())
    assert plots.positions(report) == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    axes = plots_of(report)
    assert axes["resumed"].lines[0].get_xdata().tolist() == [2, 4]
    (mean,) = lines(axes["whole run"], "mean")
    assert mean.get_xdata().tolist() == [0, 2] and mean.get_ydata().tolist() == [1, 4]


def plots_of(report) -> dict[str, object]:
    figure = Figure()
    FigureCanvasAgg(figure)
    plots.draw(report, figure)
    return {
        axes.get_title(loc="left").partition(":")[0].split(" from")[0]: axes for axes in figure.axes
    }


def edges(collection) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper edge of a filled band, at its distinct places."""
    (path,) = collection.get_paths()
    x, y = path.vertices.T
    places = np.unique(x)
    return (
        np.array([y[x == place].min() for place in places]),
        np.array([y[x == place].max() for place in places]),
    )


def test_bands_of_one_two_and_three_standard_deviations():
    report = make(n=40)
    bands = drawn(report)["mean, and"].collections
    assert len(bands) == 6
    held = report.bands["unseeded"]
    for k, collection in zip((3, 2, 1), bands[:3], strict=True):
        low, high = edges(collection)
        np.testing.assert_allclose(low, held.mean - k * held.std, atol=1e-12)
        np.testing.assert_allclose(high, held.mean + k * held.std, atol=1e-12)


def test_intervals_of_the_paired_difference():
    report = make(n=40)
    axes = drawn(report)
    one = report.paired[1]
    low, high = edges(axes["unseeded"].collections[0])
    np.testing.assert_allclose(low, one.low99, atol=1e-12)
    np.testing.assert_allclose(high, one.high99, atol=1e-12)
    assert (edges(axes["unseeded"].collections[1])[0] >= low).all()
    assert lines(axes["unseeded"], "mean")[0].get_ydata().tolist() == one.mean.tolist()
    assert "no difference in any step" in texts(axes["half and"])
    assert "no difference in any step" not in texts(axes["unseeded"])
    assert T99 > 0


def test_what_was_not_run_is_said():
    axes = drawn(make(unseeded=False))
    assert texts(axes["without a seed"]) == ["not run"]
    assert "unseeded" not in axes


def test_losses_that_are_not_finite_are_marked():
    panel = drawn(broken())["whole run"]
    (marks,) = lines(panel, "NaN or infinite")
    assert marks.get_xdata()[:3].tolist() == [50, 51, 60] and marks.get_xdata()[-1] > 190
    assert np.isfinite(panel.get_ylim()).all()
    curve = panel.lines[1]
    assert np.isnan(curve.get_ydata()[60:]).all() and np.isfinite(curve.get_ydata()[:50]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308, -1e308, 5e-324, 0.0, -0.0])
def test_any_one_value_everywhere(value):
    report = make(count=2, n=6)
    for run in report.runs:
        report = with_values(report, run.name, np.full(len(run.curve.steps), value))
    bands = {name: a_band(list(report.of(name))) for name in report.bands} if abs(value) < 1 else {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.png(replace(report, bands=bands))


def test_extremes_of_both_signs():
    values = np.array([1e308, -1e308, 1.0, 0.0])
    report = with_values(make(count=1, n=4), "whole-0", values)
    band = replace(report.bands["whole"], mean=values, std=np.abs(values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.png(replace(report, bands={"whole": band}))


def test_a_wide_range_is_logarithmic():
    report = with_values(make(n=10), "whole-0", np.geomspace(1e-6, 1e3, 10))
    assert drawn(report)["whole run"].get_yscale() == "log"
    assert drawn(make(n=10))["whole run"].get_yscale() == "linear"


def test_names_are_shown_as_they_are():
    names = ["$x_1$", "a_b^2", "50%$", "\\alpha", "\u202eabc\x1b[0m", "漢字", "x" * 300, "<b>"]
    runs = [a_run("whole", k, names, losses(8, k)) for k in range(2)]
    paired = replace(a_pair(runs, [run.curve.values for run in runs], "$unseeded$"), a="w_$h$")
    report = replace(make(), runs=tuple(runs), bands={"whole": a_band(runs)}, paired=(paired,))
    report = replace(report, verdict="$\\frac{1}$ {x_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.png(report)
    panel = plots_of(report)["whole run"]
    shown = [label.get_text() for label in panel.get_xticklabels()]
    assert shown[0] == "$x_1$" and all(len(one) <= 14 for one in shown)


def test_text_is_no_mathematics():
    from matplotlib.text import Text

    figure = Figure()
    FigureCanvasAgg(figure)
    plots.draw(make(n=4), figure)
    assert any(text.get_parse_math() for text in figure.findobj(Text))
    plots._plain_text(figure)
    assert not any(text.get_parse_math() or text.get_usetex() for text in figure.findobj(Text))


def test_a_million_steps_are_thinned_and_keep_their_spikes():
    n = 1_000_000
    names = tuple(map(str, range(n)))
    values = np.linspace(2, 1, n)
    values[[123_456, 777_777]] = 9.0, -4.0
    run = a_run("whole", 0, names, values)
    report = replace(make(), runs=(run, replace(run, number=1, name="whole-1")), paired=())
    std = np.where(np.arange(n) == 500_001, 3.0, 0.1)
    band = replace(make().bands["whole"], steps=names, mean=np.ones(n), std=std)
    report = replace(report, bands={"whole": band})
    plots.png(report)
    axes = plots_of(report)
    for line in axes["whole run"].lines:
        x, y = line.get_data()
        assert len(x) <= 2000 and (np.diff(x) > 0).all() and x[0] < 1000 and x[-1] > n - 1000
        assert y[x == 123_456] == 9.0 and y[x == 777_777] == -4.0
    low, high = edges(axes["mean, and 1, 2 and 3 standard deviations"].collections[0])
    assert len(low) <= 1002 and high.max() == pytest.approx(10.0) and low.min() == pytest.approx(-8)


def test_thinning_passes_over_what_is_not_finite():
    values = np.ones(10_000)
    values[::2] = np.nan
    values[5000:5100] = np.nan
    kept = plots.thin(values)
    assert len(kept) <= 2000
    assert np.isnan(values[kept]).sum() < 20
    assert plots.thin(np.arange(2000.0)).tolist() == list(range(2000))


def test_a_lone_nan_among_many_steps_is_marked():
    names, values = tuple(map(str, range(100_000))), np.ones(100_000)
    values[[70_001, 99_999]] = np.nan
    panel = plots_of(replace(make(), runs=(a_run("whole", 0, names, values),), paired=(), bands={}))
    (marks,) = lines(panel["whole run"], "NaN or infinite")
    assert marks.get_xdata().tolist() == [70_001, 99_999]
