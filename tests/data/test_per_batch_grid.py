"""``per_batch`` stopped at every step and resumed: 0, 1, 2, 5 workers, forked and spawned."""

import itertools

import pytest
from helpers.batches import noisy
from helpers.loaders import Indexed, start
from torch.utils.data import DataLoader

from fastseed.data import per_batch, per_sample, steps

pytestmark = pytest.mark.slow
N, BATCH, EPOCHS = 40, 4, 2
STEPS = N // BATCH * EPOCHS
WORKERS = (0, 1, 2, 5)


def loop(workers, method="fork"):
    start(0)
    more = {"num_workers": workers, "persistent_workers": method == "forkserver"}
    more["multiprocessing_context"] = method
    if not workers:
        more = {}
    loader = DataLoader(
        per_sample(Indexed(N)), BATCH, shuffle=True, collate_fn=per_batch(noisy), **more
    )
    return steps(loader, epochs=EPOCHS)


def batches(of, stop=None):
    """What the batches are, in a form that can be compared, and the state after them."""
    found, state = [], of.state_dict()
    for _, _, batch in itertools.islice(of, stop):
        found.append(batch)
        state = of.state_dict()
    return found, state


def stop_and_resume(stop, before, after, **more):
    begun, state = batches(loop(before, **more), stop)
    resumed = loop(after, **more)
    resumed.load_state_dict(state)
    return begun + batches(resumed)[0]


@pytest.mark.parametrize("before", WORKERS)
def test_forked_workers_stopped_after_each_step(before):
    whole, _ = batches(loop(0))
    assert len(whole) == STEPS
    for stop in range(STEPS):
        after = WORKERS[(WORKERS.index(before) + stop) % len(WORKERS)]
        assert stop_and_resume(stop, before, after) == whole


@pytest.mark.timeout(600)
def test_workers_of_a_fork_server_stopped_after_three_steps():
    whole, _ = batches(loop(0))
    for stop, before, after in ((1, 1, 2), (9, 2, 5), (17, 5, 0)):
        assert stop_and_resume(stop, before, after, method="forkserver") == whole
