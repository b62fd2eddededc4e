"""Exception classes of the public interface."""

from __future__ import annotations


class ReseedError(RuntimeError):
    """Some generators could not be reseeded; all others were.

    After the cause is removed, another ``reseed`` gives exactly the state of a clean run.

    Attributes:
        failures: the exception of each failing generator, by stream name.

    Examples:
        >>> import fastseed
        >>> fastseed.init(42)
        >>> fastseed.register_generator(lambda seed: 1 / 0, name="broken")
        >>> try:
        ...     fastseed.reseed(0)
        ... except fastseed.ReseedError as error:
        ...     print(list(error.failures))
        ['broken']
    """

    def __init__(self, failures: dict[str, Exception]) -> None:
        reasons = "; ".join(f"{name}: {error!r:.500}" for name, error in failures.items())
        super().__init__(f"fastseed.reseed: these generators were not reseeded: {reasons}")
        self.failures = failures
        self.__cause__ = next(iter(failures.values()), None)

    __module__ = "fastseed"  # where users find it, in tracebacks too

    def __reduce__(self) -> tuple[type[ReseedError], tuple[dict[str, Exception]]]:
        return type(self), (self.failures,)
