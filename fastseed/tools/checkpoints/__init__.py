"""Generators' states and journals in checkpoints of any framework; their code is not run.

from fastseed.tools import checkpoints

print(checkpoints.inspect("checkpoint").findings)
for one in checkpoints.compare("checkpoint", "after-resume"):
    print(one)
print(checkpoints.read_lineage("checkpoint").at(1, 0).sample)
"""

from __future__ import annotations

import os

from ..._utils import validation
from ...debug.difference import Difference
from .inspection import Inspection, compare_states, read
from .journals import (
    JobComparison,
    compare_jobs,
    has_lineage,
    locate,
    read_lineage,
    rows_of,
)
from .states import Found

__all__ = [
    "Found", "Inspection", "JobComparison", "compare", "compare_jobs", "has_lineage", "inspect",
    "locate", "read_lineage", "rows_of",
]  # fmt: skip


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """Read the states of generators in a checkpoint, and report what is wrong with them.

    No code of the checkpoint is run: pickles are read as data. Files of torch.save, plain pickles,
    folders of ``torch.distributed.checkpoint`` (also Megatron's) and files of fastseed are read.
    The checksums of zip files and of fastseed are checked; a plain pickle has none.

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
        >>> from fastseed.tools import checkpoints
        >>> folder = tempfile.mkdtemp()
        >>> for rank in range(2):
        ...     torch.save({"cpu": torch.get_rng_state()}, f"{folder}/rng_state_{rank}.pth")
        >>> checkpoints.inspect(folder).findings
        ('torch.cpu: rank 0, rank 1 have one state and draw the same random numbers',)
    """
    function = "tools.checkpoints.inspect"
    return read(function, "path", validation.check_path(function, "path", path))


def compare(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> list[Difference]:
    """Compare the states in two checkpoints, in words drawn.

    Args:
        a: a file, or the folder of one checkpoint, of any framework.
        b: the other one, of the same or of another framework.

    Returns:
        One ``Difference`` for each stream that is not in the same state in both; its name has the
        rank and the generator.

    Raises:
        TypeError, ValueError: an argument is invalid, or a checkpoint holds no state.
        FileNotFoundError: there is no such file or folder.

    Examples:
        >>> import os, tempfile, torch
        >>> from fastseed.tools import checkpoints
        >>> folder = tempfile.mkdtemp()
        >>> torch.save({"cpu": torch.get_rng_state()}, f"{folder}/a.pth")
        >>> iterator = iter(torch.utils.data.DataLoader([1, 2]))
        >>> torch.save({"cpu": torch.get_rng_state()}, f"{folder}/b.pth")
        >>> [one.text for one in checkpoints.compare(f"{folder}/a.pth", f"{folder}/b.pth")]
        ['2 words further, as one `iter(DataLoader)` draws']
    """
    function = "tools.checkpoints.compare"
    sides = []
    for name, path in (("a", a), ("b", b)):
        sides.append(read(function, name, validation.check_path(function, name, path)))
        if not sides[-1].states:
            rule = "a checkpoint with states of generators"
            raise validation.value_error(function, name, rule, os.fspath(path))
    return compare_states(sides[0], sides[1])
