"""The three global generators that every process has: Python's, NumPy's and torch's on the CPU."""

from __future__ import annotations

from collections.abc import Callable

from .._backend import native
from .._backend.derive_ops import ScopeKey
from ..derivation.scopes import Scope
from ..derivation.streams import Stream, sample_stream
from .adapter import GeneratorAdapter
from .numpy_rng import NumpyGlobal, Words
from .python_rng import PythonRandom
from .torch_rng import TorchGenerator

NAMES = ("python", "numpy", "torch.cpu")


class DefaultGenerators:
    """Reseeds the three, with native code in one call."""

    def __init__(self) -> None:
        self._python, self._numpy, self._torch = (
            PythonRandom(),
            NumpyGlobal(),
            TorchGenerator(),
        )
        self.adapters: dict[str, GeneratorAdapter] = dict(
            zip(NAMES, (self._python, self._numpy, self._torch), strict=True)
        )

    def reseed_natively(self, master_seed: int, at: Scope, rank: int) -> bool:
        """Reseed all three; return False where that needs ``reseed``, which names what fails."""
        words = self._numpy.find_words()
        if words is None:
            return False
        call = native.generators.reseed_defaults_of_cpu
        return self._reseed_three(words, call, master_seed, *at, rank)

    def reseed_sample(self, scope: ScopeKey, index: int, occurrence: int) -> dict[str, Exception]:
        """Give all three the stream of a sample; return the exceptions of those that failed."""
        words = self._numpy.find_words()
        if words is not None:
            call = native.generators.reseed_sample_of_cpu
            if self._reseed_three(words, call, *scope, index, occurrence):
                return {}
        return self.reseed(lambda name: sample_stream(scope, name, index, occurrence))

    def _reseed_three(
        self, words: Words, call: Callable[..., tuple[int, int]], *where: int
    ) -> bool:
        """Set all three by one native call; return False if one of them failed."""
        try:
            lo, hi = call(*where, words.lock, words.address)
            self._numpy.clear_gauss()
            self._python.seed(lo | hi << 64)
        except Exception:
            return False
        return True

    def reseed(self, stream_of: Callable[[str], Stream]) -> dict[str, Exception]:
        """Reseed one after another; return the exceptions of those that failed, by stream name."""
        failures: dict[str, Exception] = {}
        for name, adapter in self.adapters.items():
            try:
                adapter.reseed(stream_of(name))
            except Exception as error:
                failures[name] = error
        return failures

    def hold(self) -> Callable[[], None]:
        """Return a function that restores the exact states of this moment."""
        restores = self._python.hold(), self._numpy.hold(), self._torch.hold()

        def restore() -> None:
            for one in restores:
                one()

        return restore
