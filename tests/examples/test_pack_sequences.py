"""Each token is in one block."""

from helpers.paths import ROOT
from helpers.processes import run_python


def test_packing_loses_no_token():
    assert run_python(ROOT / "examples" / "pack_sequences.py").count("sequences") == 5
