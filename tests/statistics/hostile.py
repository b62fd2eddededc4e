"""Random sequences of calls, blocks, failures and interrupts, against a model that knows only keys.

``hostile.py SEED OPERATIONS`` makes one operation after the other, of which each is a function of
(seed, number) and of what is open: draws of every kind, blocks inside blocks, calls that must be
refused, exceptions that end a block, states saved and loaded, and interrupts at any point of a
call. The model computes from ``derivation_numpy`` what each draw gives, and which call raises. What
differs without an error is wrong. After an interrupt all blocks are left and the job is reseeded:
from then on everything must be as if it had not happened. Prints a report as JSON.

Blocks themselves are not interrupted: what ends between two bytecodes of entering or leaving a
block of torch's own is undefined as well.
"""

import contextlib
import hashlib
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers import derivation_numpy as derivation
from helpers.interrupts import interrupt

import fastseed

NAMES, TASKS, MASTER = ("a", "b", "keyed"), (1, 2), 42
NET = torch.nn.Linear(1, 1)
REFUSED: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("reseed(-1)", lambda: fastseed.reseed(-1)),
    ("reseed(1, step=2.5)", lambda: fastseed.reseed(1, step=2.5)),
    ("fork_rng('')", lambda: fastseed.fork_rng("").__enter__()),
    ("keyed('a', index=-1)", lambda: fastseed.random.keyed("a", index=-1).__enter__()),
    ("derive_key('')", lambda: fastseed.derive_key("")),
    ("load_state_dict({})", lambda: fastseed.load_state_dict({})),
    ("uniform(1, (2,), dtype=int64)", lambda: fastseed.random.uniform(1, (2,), dtype=torch.int64)),
    ("normal_(meta)", lambda: fastseed.random.normal_(torch.empty(2, device="meta"), "key")),
    ("init(seed, rank=2, world_size=1)", lambda: fastseed.init(1, rank=2, world_size=1)),
    ("perturb_(scale=nan)", lambda: fastseed.nn.perturb_(NET, 1, float("nan"))),
)


def key(at: tuple[int, int, int], name: str, index: int = 0) -> int:
    """Return the 128-bit key of a stream of rank 0, by NumPy alone."""
    words = np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], "<u8")
    level = derivation.name_keys(derivation.scope_keys(MASTER, *at), *words)
    low, high = derivation.stream_keys(level, 0, 0, index).tolist()
    return low | high << 64


class Words:
    """MT19937 with the state that a key gives it; it draws as NumPy and torch do."""

    def __init__(self, of: int) -> None:
        low, high = of & 2**64 - 1, of >> 64
        block = np.arange(156, dtype=np.uint64)
        a, b = derivation.philox(low, block, 4 << 24, high & 2**32 - 1, high >> 32)
        halves = [half for x in (a, b) for half in (x & derivation.LOW, x >> derivation.HALF)]
        state = np.stack(halves, -1).reshape(-1).astype(np.uint32)
        state[0] |= np.uint32(1 << 31)
        self.numpy = np.random.RandomState()
        self.numpy.set_state(("MT19937", state, 624))

    def torch(self, n: int) -> list[float]:
        words = np.frombuffer(self.numpy.bytes(4 * n), "<u4")
        return (words & np.uint32(2**24 - 1)).astype(np.float32) * np.float32(2**-24)


class Model:
    """What the job must give next."""

    def __init__(self) -> None:
        self.reseed((1, 0, 0))

    def reseed(self, at: tuple[int, int, int]) -> None:
        self.at, self.entered, self.masks = at, set[tuple[str, str]](), set[str]()
        self.numpy = Words(key(at, "numpy")).numpy
        self.python = random.Random(key(at, "python"))
        self.torch = Words(key(at, "torch.cpu"))
        self.open: list[dict[str, Any]] = []

    def draw(self, n: int) -> list[float]:
        """What ``torch.rand(n)`` is, in the innermost block."""
        block = self.open[-1] if self.open else {"words": self.torch}
        if "words" in block:
            return block["words"].torch(n)
        of = key(self.at, f"keyed/{block['name']}", block["index"] << 24 | block["draws"])
        block["draws"] += 1
        return fastseed.random.uniform(of, (n,)).tolist()

    def refuses(self, kind: str, name: str, index: int | None) -> bool:
        in_keyed = any("draws" in block for block in self.open)
        again = index is None and (kind, name) in self.entered
        return again or (kind == "fork_rng" and in_keyed)

    def enter(self, kind: str, name: str, index: int | None) -> None:
        if index is None:
            self.entered.add((kind, name))
        if kind == "keyed":
            self.open.append({"name": name, "index": index or 0, "draws": 0})
        else:
            slot = 0 if index is None else index + 1
            self.open.append({"words": Words(key(self.at, f"{name}/torch.cpu", slot << 8))})


class Job:
    """The job under test beside its model; each method is an operation."""

    def __init__(self, seed: int) -> None:
        self.rng, self.model, self.blocks = random.Random(seed), Model(), []
        self.wrong: list[str] = []
        self.what = ""
        self.bank = fastseed.random.StreamBank(2, "bank")
        self.sizes: list[int] = []  # of the draws of the bank since its reseed
        self.net = torch.nn.Linear(3, 2)
        with fastseed.nn.initialize(self.net, task=0):
            self.net.reset_parameters()
        self.weights = self.digest()
        self.layer = fastseed.nn.Dropout(0.5, name="layer")
        self.saved: Any = None
        self._reseed()

    def digest(self) -> str:
        return str(fastseed.debug.digest(dict(self.net.named_parameters())))

    def expect(self, is_same: bool, what: str) -> None:
        if not is_same:
            self.wrong.append(f"{self.what}: {what}, {[sorted(b) for b in self.model.open]}")

    def expect_error(self, call: Callable[[], Any], raises: bool, what: str) -> bool:
        """Make a call; return whether it was let through."""
        try:
            call()
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            self.expect(raises, f"{what} raised {error!r}"[:300])
            return False
        self.expect(not raises, f"{what} did not raise")
        return True

    def _reseed(self) -> None:
        at = self.rng.choice(TASKS), self.rng.randrange(2), self.rng.randrange(50)
        fastseed.reseed(*at)
        self.model.reseed(at)

    # -------------------------------------------------------- operations

    def reseed(self) -> None:
        if not self.model.open:
            self._reseed()
        elif "words" in self.model.open[-1]:
            self.expect_error(lambda: fastseed.reseed(1, 0, 0), True, "reseed in a block")

    def enter(self) -> None:
        kind, name = self.rng.choice(("keyed", "fork_rng")), self.rng.choice(NAMES)
        index = self.rng.choice((None, 0, 1, 7))
        if len(self.model.open) > 4:
            return
        make = fastseed.random.keyed if kind == "keyed" else fastseed.fork_rng
        block: Any = make(name, index=index)
        refused = self.model.refuses(kind, name, index)
        if self.expect_error(block.__enter__, refused, f"{kind}({name!r}, {index})"):
            self.blocks.append(block)
            self.model.enter(kind, name, index)

    def leave(self) -> None:
        if self.blocks:
            error = ValueError() if self.rng.random() < 0.3 else None
            self.blocks.pop().__exit__(type(error) if error else None, error, None)
            self.model.open.pop()

    def draw(self) -> None:
        n = self.rng.randint(1, 5)
        self.expect(torch.rand(n).tolist() == [*map(float, self.model.draw(n))], "torch.rand")

    def draw_elsewhere(self) -> None:
        self.expect(np.random.random_sample() == self.model.numpy.random_sample(), "np.random")
        self.expect(random.random() == self.model.python.random(), "random.random")

    def derive(self) -> None:
        name, index = self.rng.choice(NAMES), self.rng.randrange(3)
        same = fastseed.derive_key(name, index=index) == key(self.model.at, name, index)
        self.expect(same, "derive_key")

    def draw_of_bank(self) -> None:
        if not self.sizes or self.rng.random() < 0.2:
            self.bank.reseed_from_seeds([5, 6])
            self.sizes = []
        self.sizes.append(self.rng.randint(1, 4))
        found = fastseed.random.uniform(self.bank, (self.sizes[-1],))
        again = fastseed.random.StreamBank(2, "bank")
        again.reseed_from_seeds([5, 6])
        for n in self.sizes:
            wanted = fastseed.random.uniform(again, (n,))
        self.expect(torch.equal(found, wanted), "the bank")

    def initialize(self) -> None:
        with fastseed.nn.initialize(self.net, task=0):
            self.net.reset_parameters()
        self.expect(self.digest() == self.weights, "initialize")

    def perturb(self) -> None:
        with contextlib.suppress(ZeroDivisionError), fastseed.nn.perturbed(self.net, 7, 0.1):
            self.expect(self.digest() != self.weights, "perturbed moved nothing")
            if self.rng.random() < 0.3:
                _ = 1 / 0
        self.expect(self.digest() == self.weights, "perturbed left the weights moved")

    def drop(self) -> None:
        used, x = bool(self.model.masks), torch.ones(16)
        self.model.masks.add("layer")
        found: list[torch.Tensor] = []
        if self.expect_error(lambda: found.append(self.layer(x)), used, "Dropout"):
            seed = fastseed.derive_key("dropout/layer", rank=fastseed.SHARED)
            wanted = fastseed.nn.functional.dropout(x, 0.5, seed)
            self.expect(torch.equal(found[0], wanted), "the mask")

    def refuse(self) -> None:
        what, call = self.rng.choice(REFUSED)
        self.expect_error(call, True, what)

    def save(self) -> None:
        if not self.model.open:
            place = self.model.at, set(self.model.entered)
            numpy, python = self.model.numpy.get_state(), self.model.python.getstate()
            words = self.model.torch.numpy.get_state()
            self.saved = fastseed.state_dict(rng=True), place, numpy, python, words

    def load(self) -> None:
        if self.saved is None or any("draws" in block for block in self.model.open):
            return  # as of reseed, each draw in the block raises then
        state, place, numpy, python, words = self.saved
        is_open = bool(self.model.open)
        if self.expect_error(lambda: fastseed.load_state_dict(state), is_open, "load_state_dict"):
            self.model.reseed(place[0])
            self.model.entered |= place[1]
            self.model.numpy.set_state(numpy)
            self.model.python.setstate(python)
            self.model.torch.numpy.set_state(words)

    def interrupt(self) -> bool:
        """Interrupt a call somewhere, leave everything, begin again."""
        calls: dict[str, Callable[[], Any]] = {
            "reseed": lambda: fastseed.reseed(1, 1, 1),
            "draw": lambda: torch.rand(3),
            "bank": lambda: fastseed.random.uniform(self.bank, (2,)),
            "state": lambda: fastseed.load_state_dict(fastseed.state_dict(rng=True)),
            "initialize": self.net.reset_parameters,
            "dropout": lambda: self.layer(torch.ones(4)),
        }
        name = self.rng.choice([*calls])
        where = ""
        with contextlib.suppress(RuntimeError):
            where = interrupt(calls[name], self.rng.randrange(60))
        while self.blocks:
            with contextlib.suppress(RuntimeError):
                self.blocks.pop().__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        self.model.open.clear()
        self._reseed()
        self.sizes = []
        self.initialize()
        return bool(where)

    def close(self) -> Iterator[None]:
        while self.blocks:
            self.leave()
            yield


OPERATIONS = {
    **{Job.draw: 30, Job.enter: 22, Job.leave: 16, Job.reseed: 8, Job.draw_elsewhere: 6},
    **{Job.derive: 4, Job.draw_of_bank: 5, Job.initialize: 3, Job.perturb: 3, Job.drop: 5},
    **{Job.refuse: 8, Job.save: 2, Job.load: 2, Job.interrupt: 4},
}


def run(seed: int, operations: int) -> dict[str, Any]:
    """Make operations; return what was wrong, and how often each was made."""
    logging.disable(logging.WARNING)  # scopes and names come again on purpose
    fastseed.init(MASTER, rank=0, world_size=1)
    job, made = Job(seed), Counter[str]()
    kinds, weights = [*OPERATIONS], [*OPERATIONS.values()]
    for number in range(operations):
        (operation,) = job.rng.choices(kinds, weights)
        job.what = f"{number} {operation.__name__}"
        try:
            hit = operation(job)
        except Exception as error:
            job.wrong.append(f"{job.what}: {error!r}")
            break
        made[operation.__name__ + (" (reached)" if hit else "")] += 1
        if len(job.wrong) > 10:
            break
    return {"seed": seed, "operations": sum(made.values()), "made": made, "wrong": job.wrong}


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:]))))
