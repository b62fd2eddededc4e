"""The exact state of Python, NumPy and torch on the CPU: taken, put back, and in a file."""

from __future__ import annotations

import atexit
import functools
import io
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fastseed

from ..case import Case, Contest, Side, expect

THREE = "random.getstate(), np.random.get_state(), torch.get_rng_state()"
TAKE = f"torch.save(({THREE}), io.BytesIO())"
PUT_BACK = (
    "saved.seek(0); three = torch.load(saved, weights_only={}); "
    "random.setstate(three[0]); np.random.set_state(three[1]); torch.set_rng_state(three[2])"
)
# Types that torch.load must allow before it loads NumPy's state without running code.
HARMLESS = [np.ndarray, np.dtype, np.dtypes.UInt32DType, np.random.get_state()[1].__reduce__()[0]]


def _middle() -> None:
    """The middle of an epoch, with a Gaussian cached wherever there can be one."""
    fastseed.init(42, 1, 0)
    fastseed.reseed(1, 7)
    random.gauss(0, 1), np.random.standard_normal(), torch.randn(())


def _draws() -> list[Any]:
    own = [random.gauss(0, 1), random.random(), np.random.standard_normal(), np.random.random()]
    return [*own, torch.randn((), dtype=torch.float64).item(), torch.rand(()).item()]


def _names(**more: Any) -> dict[str, Any]:
    return {"random": random, "np": np, "torch": torch, "io": io, "fastseed": fastseed, **more}


def _resumes(*sides: Side) -> None:
    """That the draws after loading are those that came after saving."""
    _middle()
    state = fastseed.state_dict(rng=True)
    expected = _draws()
    for side in sides:
        fastseed.init(7, 1, 0)
        fastseed.reseed(2)
        side.run()
        expect(_draws() == expected, f"what is drawn after {side.label}")
    fastseed.load_state_dict(state)


def _saved() -> io.BytesIO:
    file = io.BytesIO()
    torch.save((random.getstate(), np.random.get_state(), torch.get_rng_state()), file)
    return file


def take() -> Contest:
    """The exact state, against ``torch.save`` of the three into memory."""
    _middle()
    side = Side("fastseed.state_dict", "fastseed.state_dict(rng=True)", _names())
    baseline = Side("torch.save", TAKE, _names())

    def check(contest: Contest) -> None:
        state = contest.fastseed.run()
        size = sum(len(kept) for key, kept in state.items() if key.startswith("rng."))
        expect(size <= 10_240, f"{size} bytes")  # three Mersenne Twisters, 2.5 to 5 KB each
        load = Side("load_state_dict", "fastseed.load_state_dict(state)", _names(state=state))
        _resumes(load)
        torch.save(0, io.BytesIO())
        contest.baselines[0].run()

    return Contest(side, (baseline,), check)


def put_back(weights_only: bool) -> Contest:
    """Loading, against ``torch.load`` of the three and their ``set_state``."""
    _middle()
    state, saved = fastseed.state_dict(rng=True), _saved()
    torch.serialization.add_safe_globals(HARMLESS)
    side = Side("fastseed.load_state_dict", "fastseed.load_state_dict(state)", _names(state=state))
    baseline = Side("torch.load", PUT_BACK.format(weights_only), _names(saved=saved))
    return Contest(
        side, (baseline,), lambda contest: _resumes(contest.fastseed, *contest.baselines)
    )


def file() -> Contest:
    """A file that survives a crash and knows its damage; torch's is neither flushed nor renamed."""
    _middle()
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "state"
    names = _names(path=path, other=path.with_suffix(".pt"))
    side = Side("fastseed.checkpoint.save", "fastseed.checkpoint.save(path, rng=True)", names)
    baseline = Side("torch.save", f"torch.save(({THREE}), other)", names)

    def check(contest: Contest) -> None:
        _middle()
        contest.fastseed.run(), contest.baselines[0].run()
        _resumes(
            Side("checkpoint.load", "fastseed.checkpoint.load(path)", names),
            Side("torch.load", PUT_BACK.format(False), {**names, "saved": open_bytes(names)}),
        )

    return Contest(side, (baseline,), check)


def open_bytes(names: dict[str, Any]) -> io.BytesIO:
    """Return the bytes that the baseline wrote."""
    return io.BytesIO(names["other"].read_bytes())


def cases() -> list[Case]:
    """The rows of this module."""
    safe, unsafe = (functools.partial(put_back, only) for only in (True, False))
    return [
        Case("state/cpu/3-generators", "torch.save into memory", 2, take),
        Case("load_state/cpu/3-generators", "torch.load", 5, safe),
        Case("load_state/cpu/3-generators", "torch.load that runs code", None, unsafe),
        Case("save/cpu/3-generators", "torch.save, not flushed", None, file),
    ]
