"""Journals and arguments that are refused, with nothing changed."""

import copy
import hashlib
import itertools
import json
import re
from random import Random

import pytest
from helpers.inside import signed
from helpers.loaders import Plain, same
from torch.utils.data import DataLoader, SequentialSampler

import fastseed
from fastseed.data import Lineage, MixtureSampler, steps


@pytest.fixture(autouse=True)
def job():
    fastseed.init(42, rank=0, world_size=1)


def make(n=20, batch=4, **more):
    more = {"shuffle": True, "collate_fn": same, **more}
    return steps(DataLoader(Plain(n), batch, **more), 2, task=1)


def stopped(count=3, n=20, **more):
    loop = make(n, **more)
    for _ in itertools.islice(loop, count):
        pass
    return loop


def contract():
    loop = stopped()
    loop.quarantine([1, 2])
    loop.skip(1, 0, 1)
    return json.loads(loop.state_dict()["journal"])


def edited(path, value, signed=signed):
    """Return a journal with another value, and the digest of that unless told otherwise."""
    found = contract()
    *parents, last = path
    part = found
    for key in parents:
        part = part[key]
    part[last] = value
    return signed({name: value for name, value in found.items() if name != "sha256"})


def paths(part, above=()):
    """Yield the way to each number and text of a journal."""
    if not isinstance(part, (dict, list)):
        yield above
        return
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        yield from paths(value, (*above, key))


def check_refused(damaged, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)) as caught:
        Lineage.load(damaged)
    assert str(caught.value).startswith("fastseed.data.Lineage.load: source")
    loop, state = make(), stopped().state_dict()
    before = loop.state_dict()
    with pytest.raises((TypeError, ValueError), match=r"load_state_dict: state\['journal'\]"):
        loop.load_state_dict({**state, "journal": json.dumps(damaged)})
    assert loop.state_dict() == before


def test_the_digest_is_that_of_the_specification():
    fields = contract()
    digest = fields.pop("sha256")
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == digest


def test_every_damage_is_found_by_the_digest():
    whole = contract()
    for path in set(paths(whole)) - {("sha256",)}:
        damaged = edited(path, 9, lambda fields: {**fields, "sha256": whole["sha256"]})
        is_version = path in (("format",), ("version",), ("derivation",))
        check_refused(damaged, "as of this version" if is_version else "['sha256'] must be the")
    for more in ({"more": 1}, {"sha256": 9}, {"sha256": None}):
        check_refused({**whole, **more}, "['sha256'] must be the digest of the other fields")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "fastseed.steps", "source['format'] must be 'fastseed.lineage'"),
        (("version",), 2, "source['version'] must be 1, as of this version of fastseed, got 2"),
        (("entries",), "twice", "source must be one whose entries are in order"),
        (("entries", 0, "epoch"), 2, "source must be one whose last entry is not after its step"),
        (("entries", 0, "order"), -1, "source must be one whose last entry is not after its step"),
        (("quarantines",), "reversed", "source must be one whose quarantines are in order"),
        (("skips",), "touching", "source must be one whose skips are ranges apart"),
        (("orders", 0, "kind"), "sorted", "source['orders'][...]['kind'] must be one of"),
    ],
)
def test_journals_of_other_versions_and_out_of_order_are_refused(path, value, message):
    lists = {
        "twice": contract()[path[0]] * 2,
        "touching": [{"epoch": 0, "first": a, "last": b} for a, b in ((3, 4), (1, 3))],
        "reversed": [{"epoch": e, "step": 0, "samples": [e]} for e in (1, 0)],
    }
    check_refused(edited(path, lists.get(value, value)), message)


@pytest.mark.parametrize("given", [{}, {"format": 1}, [], {"format": "fastseed.lineage"}])
def test_what_is_no_journal_is_refused(given):
    with pytest.raises((TypeError, ValueError), match=r"^fastseed\.data\.Lineage\.load: source"):
        Lineage.load(given)


def test_journals_of_another_job_are_refused():
    state = stopped().state_dict()
    other = stopped(n=24).state_dict()["journal"]
    loop = make()
    before = loop.state_dict()
    with pytest.raises(ValueError, match="must be of n 20, as here, got 24"):
        loop.load_state_dict({**state, "journal": other})
    assert loop.state_dict() == before
    fastseed.init(43, rank=0, world_size=1)
    seed = stopped().state_dict()["journal"]
    fastseed.init(42, rank=0, world_size=1)
    with pytest.raises(ValueError, match=r"saved under master seed 43.*fastseed\.init\(43\)"):
        make().load_state_dict({**state, "journal": seed})
    slotted = steps(DataLoader(Plain(20), 2, shuffle=True), 1, slots=2)
    for _, step, batches in slotted:
        list(batches)
        if step == 1:
            saved = slotted.state_dict()
    with pytest.raises(ValueError, match="new_order must be False with slots within an epoch"):
        steps(DataLoader(Plain(20), 2, shuffle=True), 1, slots=2).load_state_dict(
            saved, new_order=True
        )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda loop: loop.quarantine([20]), r"quarantine: samples.* must be in \[0, 19\]"),
        (lambda loop: loop.quarantine(range(11)), "quarantine: samples must be of at most half"),
        (lambda loop: loop.quarantine([1], "web"), "quarantine: source must be one of None, got"),
        (lambda loop: loop.skip(0, 2, 3), "skip: first_step must be not before step 3 of epoch 0"),
        (lambda loop: loop.skip(0, 4, 5), "skip: last_step must be below 5, the number of steps"),
        (lambda loop: loop.skip(1, 3, 4), "skip: first_step must be apart from steps 2 to 3"),
        (lambda loop: loop.lineage().at(0, 5), "at: step must be a step of epoch 0"),
        (lambda loop: loop.lineage().where(20), r"where: sample must be in \[0, 19\], got 20"),
        (lambda loop: loop.lineage().where(1, epochs=range(0, 4, 2)), "where: epochs must be of"),
    ],
)
def test_arguments_that_are_refused_change_nothing(call, message):
    loop = stopped()
    loop.skip(1, 2, 3)
    before = copy.deepcopy(loop.state_dict())
    with pytest.raises((TypeError, ValueError), match=message):
        call(loop)
    assert loop.state_dict() == before


MIXTURE = {
    **{"kind": "mixture", "name": "mixture", "n": 2**48, "shuffled": 1},
    "sources": [
        {"name": name, "size": size, "share": 2**31, "skip": 0}
        for name, size in (("a", 1), ("b", 3))
    ],
}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"batch_size": 2**40, "slots": 2}, r"at: step must be one of at most 134217728 samples"),
        ({"epochs": range(2**28)}, "where: epochs must be at most 134217728 for all samples"),
        (
            {"batch_size": 2**40, "slots": 2, "question": "where"},
            "the visits of 0 sample.* at most",
        ),
        ({"order": MIXTURE, "question": "where"}, "the visits of 1 sample.* must be at most"),
        ({"order": MIXTURE, "step": 2**45}, "source 'a' must be exhausted fewer than 2.*32 times"),
    ],
)
def test_answers_without_end_are_refused(edit, message):
    edit = dict(edit)
    question, epochs = edit.pop("question", "at"), edit.pop("epochs", None)
    order, step = edit.pop("order", None), edit.pop("step", 0)
    found = edited(("entries", 0), {**contract()["entries"][0], **edit}, dict)
    found |= {"quarantines": [], "orders": [order] if order else found["orders"]}
    lineage = Lineage.load(signed(found))
    with pytest.raises((ValueError, RuntimeError), match=message):
        if question == "where" or epochs:
            lineage.where([] if edit.get("slots") else 0, epochs=epochs)
        else:
            lineage.at(0, step)


def test_many_quarantines_are_answered_soon():
    found = edited(("orders", 0, "n"), 10**9, dict)
    found["quarantines"] = [{"epoch": 0, "step": i, "samples": [i]} for i in range(10_000)]
    journal = Lineage.load(signed(found)).history
    assert [journal.quarantines_at(0, step) for step in (0, 9, 10_000)] == [1, 10, 10_000]
    spans = list(journal.spans(0))
    steps = spans[-1].last
    assert journal.has_steps(0, steps - 1) and not journal.has_steps(0, steps)
    assert len(spans) == 10_000 and spans[7].quarantines == 8


def test_nothing_is_removed_from_steps_that_are_larger_than_the_reserve():
    loop = stopped(1, batch=2**24 + 1)
    with pytest.raises(ValueError, match="must be no samples in steps of more than 16777216"):
        loop.quarantine([1])


def test_half_of_the_samples_may_be_removed():
    loop = stopped()
    loop.quarantine(range(10))
    read = [int(i) for epoch, _, batch in loop if epoch == 1 for i in batch]
    assert len(read) == 20 and not {*range(10)} & {*read}


def test_a_quarantine_that_is_accepted_lasts_in_every_epoch():
    """Also where most samples of a source are removed, which come more often in some epochs."""
    accepted = 0
    for seed in range(20):
        random = Random(seed)
        sizes = {"a": random.randrange(3, 60), "b": random.randrange(2, 12)}
        weights = {"a": 1, "b": random.choice([0.2, 0.5, 1, 3])}
        sampler = MixtureSampler(sizes, weights)
        loop = steps(DataLoader(range(sum(sizes.values())), 4, sampler=sampler), 12)
        source = random.choice("ab")
        count = random.randrange(1, sizes[source])
        try:
            loop.quarantine(range(count), source)
        except ValueError as error:
            assert "must be of at most half of the positions" in str(error)
            continue
        accepted += 1
        first = sizes["a"] if source == "b" else 0
        gone = set(range(first, first + count))
        assert not any(gone & set(batch.tolist()) for _, _, batch in loop)
    assert accepted > 10


def test_files_that_do_not_exist_are_named(tmp_path):
    absent = tmp_path / "absent" / "contract.json"
    for call in (lambda: Lineage.load(absent), lambda: stopped().lineage().save(absent)):
        with pytest.raises(FileNotFoundError, match=r"No such file .*contract\.json"):
            call()


def test_orders_that_are_no_function_are_not_answered():
    data = Plain(8)
    loop = stopped(1, 8, sampler=SequentialSampler(data), shuffle=None)
    rule = "must be a ShuffleSampler or MixtureSampler, or of shuffle=True: a function of the epoch"
    for question in (lambda: loop.lineage().at(0, 0), lambda: loop.lineage().where(1)):
        with pytest.raises(ValueError, match=rule):
            question()
    for change in (lambda: loop.quarantine(1), lambda: loop.skip(1, 0, 0)):
        with pytest.raises(ValueError, match="the order of the loader must be a ShuffleSampler"):
            change()
    assert Lineage.load(loop.state_dict()).history.orders[0].kind == "other"
