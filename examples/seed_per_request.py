"""A server that gives every request its own randomness, whatever batch the request lands in.

Each request brings a seed. A bank holds one stream a slot of the batch; a slot that is given to a
request takes its key from the request's seed, and draws on from there. So the numbers of a request
depend on its seed alone: not on its neighbours, its slot, the batch size or the time it came.

    python examples/seed_per_request.py
"""

from __future__ import annotations

import argparse
import hashlib

import torch

import fastseed

STEPS = 8  # of a denoising loop, say
SHAPE = (3, 16, 16)


def serve(seeds: list[int], batch: int, device: str) -> dict[int, str]:
    """Run all requests, ``batch`` at a time; the digest of what each one got, by seed."""
    digests: dict[int, str] = {}
    for at in range(0, len(seeds), batch):
        wave = seeds[at : at + batch]
        bank = fastseed.random.StreamBank(len(wave), "image", device)
        bank.reseed_from_seeds(wave)
        image = fastseed.random.normal(bank, SHAPE)
        for _ in range(STEPS):
            image = 0.9 * image + 0.1 * fastseed.random.normal(bank, SHAPE)
        for seed, picture in zip(wave, image.cpu(), strict=True):
            digests[seed] = hashlib.sha256(picture.numpy().tobytes()).hexdigest()
    return digests


def main() -> None:
    """Serve the same requests in batches of 1, 3 and 8, in two orders, and compare."""
    parser = argparse.ArgumentParser(description="A seed per request.")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    seeds = [1_000_003 * i for i in range(args.requests)]
    first = serve(seeds, 1, args.device)
    for batch in (3, 8):
        for order in (seeds, seeds[::-1]):
            assert serve(order, batch, args.device) == first
    for seed in seeds[:4]:
        print(f"request with seed {seed:>8}: {first[seed][:16]}")
    print(f"{len(first)} requests, batches of 1, 3 and 8, two orders: the same pictures.")
    assert len(set(first.values())) == len(seeds), "two requests got the same picture"


if __name__ == "__main__":
    main()
