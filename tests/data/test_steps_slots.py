"""Steps cut into slots: the samples of each slot, whatever the number of ranks and workers."""

import functools
import itertools

import pytest
from helpers.loaders import Failing, Indexed, Numbers, Plain, Slots, point, same
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler, RandomSampler

import fastseed
from fastseed.data import Loader, MixtureSampler, ShuffleSampler, per_sample, steps

N, B = 29, 2


def make(data=None, batch=B, *, slots=4, epochs=2, assignment="blocks", **settings):
    """A loop over per-sample random numbers, in a shuffled order unless another is given."""
    data = per_sample(Indexed(N)) if data is None else data
    if not {"sampler", "shuffle", "batch_sampler"} & set(settings):
        settings["shuffle"] = True
    existing = DataLoader(data, batch, collate_fn=same, **settings)
    return steps(existing, epochs, task=1, slots=Slots(slots, assignment))


def owner(slot, slots, world, assignment):
    """The rank of a slot, by the definition of its block."""
    if assignment == "deal":
        return slot % world
    return next(r for r in range(world) if r * slots // world <= slot < (r + 1) * slots // world)


def run(world, make=make, *, state=None, stop=None):
    """Return the batch of each (epoch, step, slot), and the state of any rank."""
    seen, states = {}, []
    for rank in range(world):
        fastseed.init(42, rank=rank, world_size=world)
        loop = make()
        if state is not None:
            loop.load_state_dict(state)
        for epoch, step, batches in itertools.islice(loop, stop):
            layout = loop._slots.layout
            V, how = layout.slots, layout.assignment
            own = [slot for slot in range(V) if owner(slot, V, world, how) == rank]
            for slot, batch in zip(own, batches, strict=True):
                key = epoch, step, slot
                assert key not in seen
                seen[key] = batch
        states.append(loop.state_dict())
    assert all(each == states[0] for each in states)
    return seen, states[0]


def expected(slots, drop_last, n=N, batch=B, epochs=2):
    """The slots from the order and the samples alone."""
    fastseed.init(42, rank=0, world_size=1)
    data, sampler, found = per_sample(Indexed(n)), ShuffleSampler(n), {}
    size = slots * batch
    for epoch in range(epochs):
        fastseed.reseed(1, epoch)
        order = sampler.indices().tolist()
        for step in range(n // size if drop_last else -(-n // size)):
            for slot in range(slots):
                first = step * size + slot * batch
                found[epoch, step, slot] = [
                    data[fastseed.data.Repeat(order[i % n], i // n) if i >= n else order[i]]
                    for i in range(first, first + batch)
                ]
    return found


@pytest.mark.parametrize("assignment", ["blocks", "deal"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("slots", [1, 3, 4, 8, 20])
def test_slots_have_the_same_samples_on_any_number_of_ranks(slots, drop_last, assignment):
    if drop_last and slots * B > N:
        with pytest.raises(ValueError, match=r"data\.steps: loader must be of a step in an epoch"):
            run(1, lambda: make(slots=slots, drop_last=drop_last))
        return
    whole = expected(slots, drop_last)
    for world in range(1, 10):
        loop = functools.partial(make, slots=slots, drop_last=drop_last, assignment=assignment)
        seen, state = run(world, loop)
        assert seen == whole
        assert point(state) == (2, 0)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("workers", "other"), [(1, 2), (2, 0)])
def test_workers_change_nothing(workers, other):
    def loop(workers):
        kept = {"persistent_workers": True, "prefetch_factor": 3} if workers else {}
        return lambda: make(slots=3, num_workers=workers, **kept)

    before, state = run(2, loop(workers), stop=3)
    after, _ = run(1, loop(other), state=state)
    assert before | after == expected(3, False)


class Counted(Plain):
    """Counts the samples that were read, in this process."""

    read = 0

    def __getitem__(self, i):
        self.read += 1
        return super().__getitem__(i)


def mixed():
    mixture = MixtureSampler({"a": 20, "b": 9}, {"a": 1, "b": 2}, n=N)
    return make(per_sample(ConcatDataset([Indexed(20), Indexed(9)])), sampler=mixture)


def named():
    data = per_sample(Indexed(N))
    existing = Loader(data, B, shuffle=True, collate_fn=same, name="named")
    return steps(existing, 2, slots=4)


@pytest.mark.parametrize("loop", [mixed, named, lambda: make(shuffle=False)])
def test_orders_of_other_kinds(loop):
    one, _ = run(1, loop)
    before, state = run(5, loop, stop=2)
    after, _ = run(3, loop, state=state)
    seen = before | after
    assert sorted(seen) == sorted(one)
    assert all(repr(seen[at]) == repr(batch) for at, batch in one.items())


def test_micro_batches_are_fetched_one_by_one():
    fastseed.init(42, rank=0, world_size=1)
    data = Counted(N)
    loop = make(data, slots=4)
    assert len(loop) == 8 and len(loop.in_epoch(0)) == 4
    _, _, batches = next(iter(loop))
    assert data.read == 0
    for taken, _ in enumerate(batches, 1):
        assert data.read == taken * B
    assert taken == 4 and next(batches, None) is None and data.read == 4 * B


def test_micro_batches_that_are_left_are_an_error():
    fastseed.init(42, rank=0, world_size=1)
    whole = run(1)[0]
    loop = make()
    each = iter(loop)
    _, _, batches = next(each)
    for _ in zip(range(4), batches, strict=False):  # which takes no fifth
        pass
    saved = loop.state_dict()
    _, _, batches = next(each)
    next(batches)
    for use in (loop.state_dict, lambda: next(each), lambda: next(iter(loop))):
        with pytest.raises(RuntimeError, match="3 micro-batches of step 1 were not taken"):
            use()
    _, _, batches = next(loop.in_epoch(1))  # the rest of epoch 0 is left on purpose
    assert list(batches) == [whole[1, 0, slot] for slot in range(4)]
    loop.load_state_dict(saved)
    epoch, step, batches = next(iter(loop))
    assert (epoch, step) == (0, 1) and next(batches) == whole[0, 1, 0]


def test_a_sample_that_cannot_be_read_does_not_shift_the_slots():
    fastseed.init(42, rank=0, world_size=1)
    loop = make(Failing(N, bad=(3,)), slots=4, shuffle=False)
    each = iter(loop)
    _, _, batches = next(each)
    next(batches)
    with pytest.raises(KeyError, match="sample 3"):
        next(batches)
    assert next(batches, None) is None, "the next batch would be that of slot 2"
    with pytest.raises(RuntimeError, match="3 micro-batches of step 0 were not taken"):
        next(each)


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_epoch_at_a_time(drop_last):
    whole = expected(4, drop_last)

    def loop():
        return make(drop_last=drop_last)

    _, state = run(2, loop, stop=len(whole) // 8)  # the last step of epoch 0
    fastseed.init(42, rank=0, world_size=1)
    resumed = loop()
    resumed.load_state_dict(state)
    seen = {
        (epoch, step, slot): batch
        for epoch, step, batches in resumed.in_epoch(1)
        for slot, batch in enumerate(batches)
    }
    assert seen == {at: batch for at, batch in whole.items() if at[0] == 1}


def test_states_of_other_slots():
    _, state = run(2, stop=2)
    fastseed.init(42, rank=0, world_size=1)
    plain = steps(DataLoader(per_sample(Indexed(N)), B, shuffle=True, collate_fn=same), 2)
    cases = [
        (make(slots=2), r"state\['journal'\] must be of slots 2, as here, got 4"),
        (make(batch=4), r"state\['journal'\] must be of batch_size 4, as here, got 2"),
        (make(drop_last=True), r"state\['journal'\] must be of drop_last True"),
        (plain, "must be of slots 0"),
    ]
    for loop, message in cases:
        before = loop.state_dict()
        with pytest.raises(ValueError, match=message):
            loop.load_state_dict(state)
        assert loop.state_dict() == before
    with pytest.raises(ValueError, match="must be of slots 4"):
        make().load_state_dict(plain.state_dict())


def test_arguments():
    data = Plain(N)
    replaced = RandomSampler(data, replacement=True)
    divided = DistributedSampler(data, num_replicas=2, rank=0)
    for sampler in (replaced, divided):
        with pytest.raises(ValueError, match=r"loader\.sampler must be a ShuffleSampler or"):
            make(data, sampler=sampler)
    for existing in (
        DataLoader(Numbers(N), B),
        DataLoader(data, batch_size=None),
        DataLoader(data, batch_sampler=[[0, 1], [2]]),
    ):
        with pytest.raises(ValueError, match="loader must be of a map-style dataset, with batch_"):
            steps(existing, 1, slots=2)
    fastseed.init(42, rank=0, world_size=1)
    loop = steps(Loader(data, B, name="own"), 1, slots=2)
    assert len(loop) == -(-N // (2 * B)) and loop.loader.name == "own"


@pytest.mark.parametrize("assignment", ["blocks", "deal"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_loader_that_a_framework_makes_of_ours_has_the_same_slots(assignment, rank):
    """As ``accelerate.skip_first_batches`` does when it resumes."""
    fastseed.init(42, rank=rank, world_size=2)
    fastseed.reseed(1, 0)
    ours = make(Plain(N), assignment=assignment).loader
    theirs = DataLoader(ours.dataset, batch_sampler=ours.batch_sampler, collate_fn=same)
    assert list(theirs) == list(ours) and len(theirs) == len(list(theirs)) > 7
