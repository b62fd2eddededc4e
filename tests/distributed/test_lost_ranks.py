"""Collective calls of the library name the rank that ended or stopped; torch names none."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist
from helpers.ranks import ranks
from helpers.support import run_script

from fastseed._backend import private_distributed
from fastseed.distributed import rendezvous

PATHS = {
    "digest": "debug.digest",
    "mean": "elastic.mean",
    **dict.fromkeys(("replicated", "fully_shard"), "elastic.SlotGradients.step"),
}
# calls that meet in the store: the function in the message, and its time limit
MEETINGS = {
    "assert_ranks_agree": ("debug.check", 10),
    "first step": ("elastic.SlotGradients", 10),
    "verify_agreement": ("distributed.verify_agreement", 2),
    "init": ("init", 10),
}


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """Return what the others raise for each way to be lost; the jobs wait at the same time."""
    folder = tmp_path_factory.mktemp("stores")
    ways = ("SIGKILL", "SIGSTOP", "RAISE")
    with ThreadPoolExecutor(len(ways)) as pool:
        found = pool.map(lambda how: run_script("lost_ranks.py", how, folder / how), ways)
        return dict(zip(ways, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_rank_that_is_lost_is_named_by_every_collective_call(how, messages):
    for found in messages[how]:
        paths = {name: (path, 2) for name, path in PATHS.items()} | MEETINGS
        for name, (path, seconds) in paths.items():
            # The other rank may still wait for the time limit of the call before.
            late = rf"fastseed\.{path}: ranks? ([01], )?2 did not call it within {seconds} seconds"
            assert re.match(late, found[name]), found


@pytest.mark.slow
def test_a_rank_that_leaves_a_step_is_named_long_before_the_time_limit(messages):
    for found in messages["RAISE"]:
        for name in ("replicated", "fully_shard"):
            assert "step: rank 2 left the step in slot 2, and this rank waits" in found[name]
        assert found["seconds"] < 30  # of 60


def failing_call():
    """Fail in one of two functions, on two ranks when the others have left; return the message."""
    rank, rendezvous.GRACE = dist.get_rank(), 3.0
    store = private_distributed.default_store()
    dist.barrier()
    if rank > 1:
        store.wait(["0 has left", "1 has left"])
    try:
        rendezvous.collective("ab"[rank % 2], fail)
    except RuntimeError as error:
        return str(error)
    finally:
        rendezvous.GRACE = 5.0
        store.set(f"{rank} has left", "")


def fail(group):
    raise RuntimeError("Connection closed by peer")


def test_ranks_in_several_functions_name_those_that_are_lost_and_not_themselves():
    named = ("ranks 2, 3", "ranks 2, 3", "rank 3", "rank 2")
    for rank, text in enumerate(ranks(4, failing_call)):
        late = f"fastseed.{'ab'[rank % 2]}: {named[rank]} did not call it within 3 seconds of the"
        assert text.startswith(late)
