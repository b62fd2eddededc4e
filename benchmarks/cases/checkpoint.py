"""The exact state of Python, NumPy and torch on the CPU: taken, put back, and in a file."""

from __future__ import annotations

import atexit
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
    "saved.seek(0); three = torch.load(saved, weights_only=True); "
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


def _resumes(side: Side) -> None:
    """That the draws after loading are those that came after saving."""
    _middle()
    state = fastseed.state_dict(rng=True)
    expected = _draws()
    fastseed.init(7, 1, 0)
    fastseed.reseed(2)
    side.run()
    expect(_draws() == expected, f"what is drawn after {side.label}")
    fastseed.load_state_dict(state)


def take(_: str) -> Contest:
    """The exact state, against ``torch.save`` of the three into memory."""
    _middle()

    def check(side: Side) -> None:
        state = side.run()
        size = sum(len(kept) for key, kept in state.items() if key.startswith("rng."))
        expect(size <= 10_240, f"{size} bytes")  # three Mersenne Twisters, 2.5 to 5 KB each
        _resumes(Side("load_state_dict", "fastseed.load_state_dict(state)", _names(state=state)))

    side = Side("fastseed.state_dict", "fastseed.state_dict(rng=True)", _names())
    theirs = Side("torch.save", TAKE, _names())
    return Contest(side, check, {"torch.save into memory": lambda: [theirs]})


def put_back(_: str) -> Contest:
    """Loading, against ``torch.load`` of the three and their ``set_state``."""
    _middle()
    state, saved = fastseed.state_dict(rng=True), io.BytesIO()
    torch.save((random.getstate(), np.random.get_state(), torch.get_rng_state()), saved)
    torch.serialization.add_safe_globals(HARMLESS)
    side = Side("fastseed.load_state_dict", "fastseed.load_state_dict(state)", _names(state=state))
    theirs = Side("torch.load", PUT_BACK, _names(saved=saved))
    return Contest(side, _resumes, {"torch.load": lambda: [theirs]}, _resumes)


def file(_: str) -> Contest:
    """A file that survives a crash and knows its damage; torch's is neither flushed nor renamed."""
    _middle()
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "state"
    names = _names(path=path, other=path.with_suffix(".pt"))
    side = Side("fastseed.checkpoint.save", "fastseed.checkpoint.save(path, rng=True)", names)

    def check(side: Side) -> None:
        _middle()
        side.run()
        _resumes(Side("checkpoint.load", "fastseed.checkpoint.load(path)", names))

    theirs = Side("torch.save", f"torch.save(({THREE}), other)", names)
    return Contest(side, check, {"torch.save, not flushed": lambda: [theirs]})


def cases() -> list[Case]:
    """The rows of this module."""
    return [
        Case("state", "3-generators", {"torch.save into memory": 2}, take),
        Case("load_state", "3-generators", {"torch.load": 5}, put_back),
        Case("save", "3-generators", {"torch.save, not flushed": None}, file),
    ]
