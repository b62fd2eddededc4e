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
from fastseed.debug.watch_file import Recording
from fastseed.digest import tensors
from fastseed.digest.trees import digest

from ..case import Case, Contest, Side, Unavailable, expect

BYTES = 400_000_000
TENSORS = 100


@functools.cache
def _bytes() -> torch.Tensor:
    """The same memory for all sides."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**63), 2**63 - 1, (BYTES // 8,), generator=generator)
    return words.view(torch.uint8)


def _sees_a_bit(side: Side) -> None:
    data, before = _bytes(), str(side.run())
    data[BYTES // 2] ^= 4
    changed = str(side.run())
    data[BYTES // 2] ^= 4
    expect(before != changed and str(side.run()) == before, f"{side.label} of other bytes")


def _check(side: Side) -> None:
    """Check the digest of a part against NumPy, and that one flipped bit changes the whole."""
    part = _bytes()[: 1 << 20]
    header = tensors.header_of(torch.uint8, tuple(part.shape))
    rows = _reference_digest.digest_rows(header.key, part.numpy()[None], 0, 0)
    right = (header.start + rows) % tensors.MODULUS
    expect(side.run(x=part) == right, "the digest of a part")
    _sees_a_bit(side)


def hashes(_: str) -> Contest:
    """400 MB on one thread."""

    def xxhash() -> list[Side]:
        try:
            import xxhash
        except ImportError as error:
            raise Unavailable("xxhash is not installed") from error
        names = {"xxhash": xxhash, "x": _bytes().numpy()}
        return [Side("xxh3_128", "xxhash.xxh3_128_intdigest(x)", names)]

    def sha256() -> list[Side]:
        names = {"hashlib": hashlib, "x": _bytes().numpy()}
        return [Side("hashlib.sha256", "hashlib.sha256(x).digest()", names)]

    side = Side("digest", "digest(x).table[''].value", {"digest": digest, "x": _bytes()})
    beside = {"xxhash.xxh3_128": xxhash, "hashlib.sha256": sha256}
    return Contest(side, _check, beside, _sees_a_bit)


def of_many(device: str) -> Contest:
    """The digest of 100 tensors of 1000 numbers, beside their norms on the host."""
    tensors = [torch.randn(1000, device=device) for _ in range(TENSORS)]
    names = {"digest": digest, "tensors": tensors, "torch": torch}

    def check(side: Side) -> None:
        table = side.run().table
        one = digest(tensors[7].cpu()).table[""].value
        expect(len(table) == TENSORS and table["7"].value == one, "the digest of a tensor")

    norms = Side("norms", "[x.item() for x in torch._foreach_norm(tensors)]", names)
    side = Side("digest", "digest(tensors)", names)
    return Contest(side, check, {"norms to the host": lambda: [norms]})


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


def _without(step: Any) -> Any:
    return {"the step without": lambda: [Side("the step itself", "step()", {"step": step})]}


def watching(_: str) -> Contest:
    """A step of which 400 tensors are recorded, 52 MB: parameters, gradients, optimizer's state."""
    model, optimizer, step = _training()
    folder = tempfile.TemporaryDirectory()
    watch = fastseed.debug.Watch(model, optimizer, path=folder.name)
    names = {"watch": watch, "folder": folder, "step": step}

    def check(side: Side) -> None:
        side.run()
        found = fastseed.debug.bisect(folder.name, folder.name)
        expect(found.equal and found.compared == 2, "what was recorded")

    return Contest(Side("a step", "step(); watch.record()", names), check, _without(step))


def calling(_: str) -> Contest:
    """A step with every call of 51 modules recorded."""
    model, _optimizer, step = _training()
    folder = tempfile.TemporaryDirectory()

    def recorded() -> None:
        with fastseed.debug.Watch(
            model, path=folder.name, groups=(), modules=True, append=True
        ) as w:
            step()
            w.record()

    def check(side: Side) -> None:
        side.run()
        found = Recording(Path(folder.name, "rank-0.watch")).tables[-1]
        calls = TENSORS // 2 + 1
        expect(len(found) == 4 * calls - 2, "inputs, outputs and gradients of each call")

    return Contest(Side("a step", "recorded()", {"recorded": recorded}), check, _without(step))


def cases() -> list[Case]:
    """The rows of this module."""
    without: dict[str, float | None] = {"the step without": None}
    return [
        Case("digest", "400mb", {"xxhash.xxh3_128": 0.8, "hashlib.sha256": None}, hashes),
        Case("digest", f"{TENSORS}-tensors", {"norms to the host": None}, of_many,
             devices=("cuda",)),
        Case("watch", "400-tensors", without, watching),
        Case("watch", f"{TENSORS // 2 + 1}-modules", without, calling),
    ]  # fmt: skip
