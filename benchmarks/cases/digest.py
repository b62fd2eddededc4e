"""Digests beside hashes of the same bytes, and what watching a model costs a step."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch

import fastseed
from fastseed._backend.reference import digest as _reference_digest
from fastseed.debug import tensor_digest
from fastseed.debug.tree_digest import digest
from fastseed.debug.watch_file import STATE, Recording

from ..case import Case, Contest, Side, Unavailable, expect

BYTES = 400_000_000
TENSORS = 100


@functools.cache
def _bytes() -> torch.Tensor:
    """The same memory for all sides."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**63), 2**63 - 1, (BYTES // 8,), generator=generator)
    return words.view(torch.uint8)


def _check(contest: Contest) -> None:
    """Check the digest of a part against NumPy, and that one flipped bit changes both."""
    data = _bytes()
    part = data[: 1 << 20]
    header = tensor_digest.header_of(torch.uint8, tuple(part.shape))
    rows = _reference_digest.digest_rows(header.key, part.numpy()[None], 0, 0)
    expect(
        contest.fastseed.run(x=part) == (header.start + rows) % tensor_digest.MODULUS,
        "the digest of a part",
    )
    for side in (contest.fastseed, *contest.baselines):
        before = str(side.run())
        data[BYTES // 2] ^= 4
        changed = str(side.run())
        data[BYTES // 2] ^= 4
        expect(before != changed and str(side.run()) == before, f"{side.label} of other bytes")


def _ours(threads: int = 1) -> Side:
    return Side("digest", "digest(x).table[''].value", {"digest": digest, "x": _bytes()}, threads)


def against_xxhash(threads: int) -> Contest:
    try:
        import xxhash
    except ImportError as error:
        raise Unavailable("xxhash is not installed: pip install 'fastseed[bench]'") from error
    names = {"xxhash": xxhash, "x": _bytes().numpy()}
    baseline = Side("xxh3_128", "xxhash.xxh3_128_intdigest(x)", names)
    return Contest(_ours(threads), (baseline,), _check)


def against_sha256() -> Contest:
    names = {"hashlib": hashlib, "x": _bytes().numpy()}
    baseline = Side("hashlib.sha256", "hashlib.sha256(x).digest()", names)
    return Contest(_ours(), (baseline,), _check)


def _training() -> tuple[torch.nn.Module, Any, Any]:
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(TENSORS // 2)))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    return model, optimizer, step


def watching(*, parameters_only: bool = False) -> Contest:
    """The time that ``record`` adds to a step of a model of 100 tensors (13 MB).

    With its gradients and the optimizer's state there are 400 tensors, 52 MB.
    """
    model, optimizer, step = _training()
    folder = tempfile.TemporaryDirectory()
    groups = ("parameter",) if parameters_only else STATE
    watch = fastseed.debug.Watch(model, optimizer, path=folder.name, groups=groups)
    names = {"watch": watch, "folder": folder}

    def check(contest: Contest) -> None:
        contest.fastseed.run()
        found = fastseed.debug.bisect(folder.name, folder.name)
        expect(found.equal and found.compared == 2, "what was recorded")
        contest.baselines[0].run()

    baseline = Side("the step itself", "step()", {"step": step})
    return Contest(Side("Watch.record", "watch.record()", names), (baseline,), check)


def calling() -> Contest:
    """A step with every call of 51 modules recorded, beside the same step without."""
    model, _, step = _training()
    folder = tempfile.TemporaryDirectory()

    def recorded() -> None:
        with fastseed.debug.Watch(
            model, path=folder.name, groups=(), modules=True, append=True
        ) as w:
            step()
            w.record()

    def check(contest: Contest) -> None:
        contest.fastseed.run()
        found = Recording(Path(folder.name, "rank-0.watch")).tables[-1]
        calls = TENSORS // 2 + 1
        expect(len(found) == 4 * calls - 2, "inputs, outputs and gradients of each call")
        contest.baselines[0].run()

    baseline = Side("the step itself", "step()", {"step": step})
    return Contest(
        Side("a recorded step", "recorded()", {"recorded": recorded}), (baseline,), check
    )


def cases() -> list[Case]:
    """The rows of this module."""
    one, all_threads = (functools.partial(against_xxhash, n) for n in (1, torch.get_num_threads()))
    return [
        Case("digest/cpu/400mb", "xxhash.xxh3_128", 0.8, one),
        Case("digest/cpu/400mb-all-threads", "xxhash.xxh3_128, which has one", None, all_threads),
        Case("digest/cpu/400mb", "hashlib.sha256", 30, against_sha256),
        Case(f"watch/cpu/{TENSORS}-tensors", "the step it watches", None, watching),
        Case(
            f"watch/cpu/{TENSORS}-parameters",
            "the step it watches",
            20,  # the aim: 5 % of a step
            functools.partial(watching, parameters_only=True),
        ),
        Case(f"watch/cpu/{TENSORS // 2 + 1}-modules", "the step without", None, calling),
    ]
