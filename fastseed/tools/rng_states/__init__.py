"""The states of random generators in checkpoints of any framework, read without running their code.

    from fastseed.tools import rng_states

    print(rng_states.inspect("checkpoint").findings)
    for one in rng_states.compare("checkpoint", "after-resume"):
        print(one.owner, one.stream, one.text)

``docs/inspect-checkpoints.md`` has the formats that are read, and what is not.
"""

from __future__ import annotations

import os

from ..._utils import validation
from ...debug.exact_state import MOST_WORDS, GeneratorState
from .comparison import Difference, compare_states
from .finding import Found
from .inspection import Inspection, read

__all__ = [
    "MOST_WORDS", "Difference", "Found", "GeneratorState", "Inspection", "compare", "inspect",
]  # fmt: skip


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Read the states of generators in a checkpoint, and report what is wrong with them.

    No code of the checkpoint is run: pickles are read as data. Files of torch.save, plain pickles,
    folders of ``torch.distributed.checkpoint`` (also Megatron's) and files of fastseed are read.

    Args:
        path: a file, or the folder of one checkpoint.

    Returns:
        The states and the findings; true if there is no finding.

    Raises:
        TypeError: ``path`` is not a path.
        ValueError: nothing in it can be read.
        FileNotFoundError: there is no such file or folder.

    Examples:
        >>> import os, tempfile, torch
        >>> from fastseed.tools import rng_states
        >>> folder = tempfile.mkdtemp()
        >>> for rank in range(2):
        ...     torch.save({"cpu": torch.get_rng_state()}, f"{folder}/rng_state_{rank}.pth")
        >>> rng_states.inspect(folder).findings
        ('torch.cpu: rank 0, rank 1 have one state and draw the same random numbers',)
    """
    function = "tools.rng_states.inspect"
    return read(function, "path", validation.check_path(function, "path", path))


def compare(
    a: str | os.PathLike[str], b: str | os.PathLike[str], *, most: int = MOST_WORDS
) -> list[Difference]:
    """Compare the states in two checkpoints, in words drawn.

    Args:
        a: a file, or the folder of one checkpoint, of any framework.
        b: the other one, of the same or of another framework.
        most: how many words to search for a state of one stream in the other, [0, 2**40].

    Returns:
        One ``Difference`` for each stream that is not in the same state in both.

    Raises:
        TypeError, ValueError: an argument is invalid, or a checkpoint holds no state.
        FileNotFoundError: there is no such file or folder.

    Examples:
        >>> import os, tempfile, torch
        >>> from fastseed.tools import rng_states
        >>> folder = tempfile.mkdtemp()
        >>> torch.save({"cpu": torch.get_rng_state()}, f"{folder}/a.pth")
        >>> iterator = iter(torch.utils.data.DataLoader([1, 2]))
        >>> torch.save({"cpu": torch.get_rng_state()}, f"{folder}/b.pth")
        >>> [one.words for one in rng_states.compare(f"{folder}/a.pth", f"{folder}/b.pth")]
        [2]
    """
    function = "tools.rng_states.compare"
    validation.check_int(function, "most", most, 0, 2**40)
    sides = []
    for name, path in (("a", a), ("b", b)):
        sides.append(read(function, name, validation.check_path(function, name, path)))
        if not sides[-1].states:
            rule = "a checkpoint with states of generators"
            raise validation.value_error(function, name, rule, os.fspath(path))
    return compare_states(sides[0], sides[1], most)
