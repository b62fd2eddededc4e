"""Other libraries: cuRAND's host API through ctypes, and JAX, where they are there."""

from __future__ import annotations

import ctypes
import functools
import glob
import os
import site
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..baselines import jax_draws
from ..case import Unavailable
from .case import NAME_KEY, OPS, RANK_WORD, WORKER, keys

if TYPE_CHECKING:
    from .times import Clock

SIZE = 10**8
XORWOW, PHILOX = 101, 161  # curandRngType
DYNAMIC = 104  # curandOrdering: the fastest
UNIFORM, NORMAL = (1.0, 0.0, 0.99999994), (0.0, 1.0)


def _curand() -> Any:
    """Return the library: the loader's, that of pip's packages, or the toolkit's."""

    def places() -> Iterator[str]:
        yield "libcurand.so.10"
        for folder in [*site.getsitepackages(), site.getusersitepackages()]:
            yield from sorted(glob.glob(f"{folder}/nvidia/*/lib/libcurand.so.10"))
        yield f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/lib64/libcurand.so"

    for path in places():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise Unavailable("libcurand is not here")


def _beside_curand(law: str, kind: int, clock: Clock) -> dict[str, Any]:
    """Time a draw of one line beside a generator of cuRAND."""
    from .times import timing

    library, handle = _curand(), ctypes.c_void_p()

    def do(function: str, *arguments: Any) -> None:
        if (code := getattr(library, function)(*arguments)) != 0:
            raise RuntimeError(f"{function} failed with {code}")

    out, key = torch.zeros(1, SIZE, device="cuda"), keys(1).cuda()
    address, n = ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(SIZE)
    do("curandCreateGenerator", ctypes.byref(handle), kind)
    do("curandSetGeneratorOrdering", handle, DYNAMIC)
    do("curandSetStream", handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    do("curandSetPseudoRandomGeneratorSeed", handle, ctypes.c_ulonglong(42))
    if law == "uniform":
        ours = lambda: OPS.draw_uniform(out, key, None, [], [], 0, *UNIFORM)  # noqa: E731
        theirs = lambda: do("curandGenerateUniform", handle, address, n)  # noqa: E731
    else:
        ours = lambda: OPS.draw_normal(out, key, None, [], [], 0, *NORMAL)  # noqa: E731
        laws = (ctypes.c_float(0), ctypes.c_float(1))
        theirs = lambda: do("curandGenerateNormal", handle, address, n, *laws)  # noqa: E731
    times = clock.medians([[ours], [theirs]], False)
    against = f"cuRAND {'XORWOW' if kind == XORWOW else 'Philox'}"
    line = timing(f"{law} 1e8 beside cuRAND", times[0], 0, 1, against, times[1])
    return line | {"headline": kind == XORWOW, "ratio_target": 1.0, "bits": ""}


def _beside_jax(case: str, clock: Clock) -> dict[str, Any]:
    """Time a bulk call beside JAX's fastest generator, both by the host's clock."""
    from .times import Clock as Clocks
    from .times import timing

    library = jax_draws.jax()
    if library.default_backend() != "gpu":
        raise Unavailable("this JAX sees no GPU")
    del clock  # JAX has no events
    rows, length = 65536, 1024
    if case == "split":
        out = torch.zeros(SIZE, 2, dtype=torch.uint64, device="cuda")
        ours = lambda: OPS.derive_keys(out, *NAME_KEY, RANK_WORD, WORKER, 0)  # noqa: E731
        work, given = jax_draws.splitter(SIZE), jax_draws.key(jax_draws.DEFAULT)
    else:
        out = torch.zeros(rows, length, device="cuda")
        own, at = keys(rows).cuda(), torch.zeros(rows, dtype=torch.int64, device="cuda")
        parameters = NORMAL if case == "normal" else UNIFORM
        draw = getattr(OPS, f"draw_{case}")
        ours = lambda: draw(out, own, at, [], [], 0, *parameters)  # noqa: E731
        work, given = jax_draws.drawer(case, length), jax_draws.keys(jax_draws.DEFAULT, rows)

    def seconds_of_jax(repeats: int = 5) -> float:
        work(given).block_until_ready()
        found = []
        for _ in range(repeats):
            begun = time.perf_counter()
            work(given).block_until_ready()
            found.append(time.perf_counter() - begun)
        return sorted(found)[repeats // 2]

    mine = Clocks("cuda", by_events=False).medians([[ours]], False)[0]
    line = timing(f"{case} beside JAX", mine, 0, 1, f"JAX {jax_draws.DEFAULT}", seconds_of_jax())
    return line | {"headline": True, "ratio_target": 3.0 if case == "split" else 1.5, "bits": ""}


BASELINES: list[tuple[str, Callable[[Any], dict[str, Any]]]] = [
    *(
        (f"{law} 1e8 beside cuRAND", functools.partial(_beside_curand, law, kind))
        for kind in (XORWOW, PHILOX)
        for law in ("uniform", "normal")
    ),
    *(
        (f"{case} beside JAX", functools.partial(_beside_jax, case))
        for case in ("split", "uniform", "normal")
    ),
]
