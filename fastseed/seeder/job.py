"""The place of a process in its job, as the arguments of ``init`` and the environment say."""

from __future__ import annotations

from typing import NamedTuple

from ..derivation.rank_fields import Mesh
from ..distributed import discovery
from ..distributed import mesh as meshes


class Job(NamedTuple):
    """What a seeder knows of its job besides the master seed."""

    rank: int
    world_size: int
    mesh: Mesh | None = None
    data_over: tuple[str, ...] = ()
    """The dimensions of the mesh that divide the data."""
    distinct_over: object = None
    is_assumed: bool = False
    """Whether nothing said the rank and world size."""

    @property
    def data(self) -> tuple[int, int]:
        """This process's share of the data, and the number of shares."""
        if self.mesh is None:
            return self.rank, self.world_size
        return self.mesh.along(self.data_over)


def read_job(
    function: str,
    ngpus: int | None = None,
    local_rank: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    mesh: object = None,
    data_over: object = None,
    distinct_over: object = None,
    *,
    correct: bool = True,
) -> Job:
    """Return the job; TypeError or ValueError if an argument of ``init`` is invalid."""
    here = discovery.locate(function, ngpus, local_rank, rank, world_size, correct=correct)
    place, here = meshes.locate_in_mesh(function, mesh, distinct_over, here)
    over = meshes.check_data_over(function, data_over, place)
    given = (ngpus, local_rank, rank, world_size) != (None,) * 4
    is_assumed = here.source == "default" and not given
    return Job(here.rank, here.world_size, place, over, distinct_over, is_assumed)
