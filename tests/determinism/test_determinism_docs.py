"""The tables of docs/determinism.md match the code."""

from __future__ import annotations

import json
import re

from helpers.paths import ROOT

import fastseed
from fastseed._utils import environ
from fastseed.determinism import apply_config, variables
from fastseed.determinism.settings import SET, TOO_LATE, UNAVAILABLE, UNCHANGED

TEXT = (ROOT / "docs" / "determinism.md").read_text()


def test_statuses_settings_and_variables_have_rows():
    assert all(f"`{s}`" in TEXT for s in (SET, UNCHANGED, TOO_LATE, UNAVAILABLE))
    for variable in variables.VARIABLES:
        assert re.search(rf"^\| `{variable.name}` \| `{variable.wanted}`", TEXT, re.MULTILINE)
    with fastseed.deterministic() as report:
        settings = [row.setting for row in report.rows if row.wanted is not None]
    table = TEXT.partition("| setting |")[2].partition("\n\n")[0]
    for name in settings:
        shown = name.partition(":")[0].replace("torch.backends.cudnn.benchmark", ".benchmark")
        assert f"`{shown}`" in table, name


def test_the_section_of_clara_is_taken():
    (text,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    document = json.loads(text)
    assert document["determinism"]["python_seed"] == "20191015"
    assert list(apply_config(document)) == list(document["determinism"])


def test_every_variable_has_its_meaning():
    rows = set(re.findall(r"^\| `(FASTSEED_[A-Z_]+)` \| .+ \|$", TEXT, re.MULTILINE))
    values = [value for value in vars(environ).values() if isinstance(value, str)]
    names = {value for value in values if re.fullmatch("FASTSEED_[A-Z_]+", value)}
    assert names and names <= rows
