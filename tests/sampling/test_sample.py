"""A token depends on its logits, key and position, and on nothing else of the call."""

import math

import numpy as np
import pytest
import torch
from helpers.processes import alone
from helpers.support import snapshot
from helpers.token_filters import survivors
from torch.utils._python_dispatch import TorchDispatchMode

import fastseed
from fastseed._backend.ops.sampling import LEAST_CODE, sampling_race
from fastseed._backend.reference.sampling import token_codes
from fastseed.sampling import accept_equal, sample
from fastseed.sampling.thresholds import Rows, check_filters, threshold_of

B, V = 8, 1000
FILTERS = (
    {},
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 20},
    {"temperature": 1.5, "top_p": 0.8},
    {"min_p": 0.1},
    {"top_k": 50, "top_p": 0.9, "min_p": 0.01},
)


def logits(rows=B, size=V, seed=0, scale=3.0):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * scale


def bank_of(rows):
    bank = fastseed.random.StreamBank(rows, "bank")
    bank.reseed_from_seeds(range(100, 100 + rows))
    return bank


def keys(rows=B):
    return bank_of(rows).keys


POSITIONS = torch.arange(B) * 17


def tokens(x=None, k=None, at=None, **more):
    """The tokens of eight rows, or of others."""
    x = logits() if x is None else x
    k = keys() if k is None else k
    return sample(x, k, POSITIONS if at is None else at, **more)


# ---------------------------------------------------------------- independence


@pytest.mark.parametrize("filters", FILTERS)
def test_tokens_do_not_depend_on_the_batch(filters):
    x, k, whole = logits(), keys(), tokens(**filters)
    for size in (1, 3):
        for begin in range(0, B - size + 1, size):
            part = slice(begin, begin + size)
            found = tokens(x[part], k[part], POSITIONS[part], **filters)
            assert torch.equal(found, whole[part])
    order = torch.randperm(B, generator=torch.Generator().manual_seed(1))
    shuffled = k.view(torch.int64)[order].view(torch.uint64)
    assert torch.equal(tokens(x[order], shuffled, POSITIONS[order], **filters), whole[order])


@pytest.mark.parametrize("filters", FILTERS)
def test_tokens_do_not_depend_on_padding_and_strides(filters):
    whole = tokens(**filters)
    padded = torch.full((B, V + 77), -math.inf)
    padded[:, :V] = logits()
    assert torch.equal(tokens(padded, **filters), whole)
    sequence = torch.randn(B, 3, V)
    sequence[:, -1] = logits()
    assert torch.equal(tokens(sequence[:, -1], **filters), whole)
    assert torch.equal(tokens(logits().t().contiguous().t(), **filters), whole)
    assert torch.equal(tokens(padded[:, :V], **filters), whole)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tokens_are_those_of_the_same_numbers_of_other_dtypes_and_devices(dtype, device):
    x = logits().to(dtype)
    there = x.to(device), keys().to(device), POSITIONS.to(device)
    for filters in FILTERS:
        assert torch.equal(tokens(*there, **filters).cpu(), tokens(x.float(), **filters))


def test_tokens_of_large_vocabularies_do_not_depend_on_parts():
    x = logits(2, 100_003, scale=1.0)
    scores, found = torch.empty(2, 1, dtype=torch.float64), torch.empty(2, 1, dtype=torch.int64)
    heat, least = torch.ones(2, dtype=torch.float64), torch.full((2,), LEAST_CODE)
    sampling_race(scores, found, x, keys(2), POSITIONS[:2], heat, least, 0)
    assert torch.equal(tokens(x, keys(2), POSITIONS[:2]), found[:, 0])


def test_ties_of_large_vocabularies_go_to_the_lowest_token():
    x = torch.zeros(1, 100_003)
    x[:, [40_000, 90_000]] = 1.0
    assert sample(x, [7], 0, temperature=0).tolist() == [40_000]
    assert sample(x, [7], 0, temperature=2.0**-20).item() in (40_000, 90_000)  # the least


def test_an_invalid_part_of_a_large_vocabulary_makes_the_row_invalid():
    x = torch.full((1, 100_003), -math.inf)
    x[:, 7] = 1.0
    assert sample(x, [7], 0).tolist() == [7]
    x[:, -1] = math.nan
    with pytest.raises(ValueError, match=r"logits must have a token to choose .* got row 0 with"):
        sample(x, [7], 0)


def test_seeds_are_what_derive_seeds_returns():
    fastseed.init(42, rank=0, world_size=1)
    seeds = fastseed.derive_seeds("request", B, task=0)
    assert torch.equal(tokens(k=seeds), tokens(k=seeds.tolist()))
    assert torch.equal(tokens(k=seeds), tokens(k=seeds.view(torch.int64)))


def test_positions_have_their_own_noise():
    x = torch.zeros(1, V).expand(B, V)
    k = keys(1).expand(B, 2)
    found = tokens(x, k, torch.arange(B))
    assert len(set(found.tolist())) > B - 2
    assert torch.equal(tokens(x, k, 5), sample(x[:1], k[:1], 5).expand(B))


def test_parameters_differ_between_rows():
    rows = {
        "temperature": [0.0, 0.5, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0],
        "top_k": [0, 0, 5, 0, 1, 0, 0, 10**6],
        "top_p": [1.0, 1.0, 1.0, 0.5, 1.0, 1e-9, 1.0, 0.9],
        "min_p": [0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 1.0, 0.0],
    }
    whole = tokens(**{name: torch.tensor(values) for name, values in rows.items()})
    for i in range(B):
        one = {name: values[i] for name, values in rows.items()}
        found = sample(logits()[i : i + 1], keys()[i : i + 1], int(POSITIONS[i]), **one)
        assert found.item() == whole[i].item(), one
    for i in (0, 4, 5, 6):
        assert whole[i] == logits()[i].argmax()


# ---------------------------------------------------------------- filters


@pytest.mark.parametrize("filters", (*FILTERS[2:], {"temperature": 3.0, "min_p": 0.02}))
def test_filters_keep_what_sorting_keeps(filters):
    x = logits()
    heat = torch.full((B,), filters.get("temperature", 1.0), dtype=torch.float64)
    of = [filters.get(name, off) for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0))]
    least = threshold_of(Rows(x, heat), check_filters("sampling.sample", *of, x))
    kept = [token_codes(row.numpy(), 0) >= int(c) for row, c in zip(x, least, strict=True)]
    assert np.array_equal(kept, survivors(x, **filters).numpy())


def test_a_search_is_one_operator():
    """On a device each operator is a launch, and the search seven of them."""
    called = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            called.append(str(operator))
            return operator(*args, **kwargs or {})

    given = logits(), keys(), POSITIONS
    with Calls():
        tokens(*given, top_k=50, top_p=0.9)
    assert called.count("fastseed.sampling_threshold.default") == 2 and len(called) <= 30


def test_a_row_without_a_filter_keeps_tokens_without_weight():
    x = torch.tensor([[0.0, -1000.0], [0.0, -1000.0]])
    heat, top_p = torch.ones(2, dtype=torch.float64), torch.tensor([1.0, 0.5])
    least = threshold_of(Rows(x, heat), check_filters("sampling.sample", 0, top_p, 0.0, x))
    kept = [token_codes(row.numpy(), 0) >= int(c) for row, c in zip(x, least, strict=True)]
    assert np.array_equal(kept, [[True, True], [True, False]])


@pytest.mark.parametrize("filters", FILTERS[2:])
def test_tokens_are_those_of_the_survivors_alone(filters):
    x, k, at = logits(1).expand(500, V), keys(1).expand(500, 2), torch.arange(500)
    alone = x.masked_fill(~survivors(x, **filters), -math.inf)
    heat = filters.get("temperature", 1.0)
    assert torch.equal(sample(x, k, at, **filters), sample(alone, k, at, temperature=heat))


def test_of_equal_logits_the_lower_token_survives():
    x = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]]).expand(200, 5)
    at = torch.arange(200)
    found = sample(x, keys(1).expand(200, 2), at, top_k=2)
    assert set(found.tolist()) == {1, 2}
    found = sample(x, keys(1).expand(200, 2), at, top_p=0.3)
    assert set(found.tolist()) == {1, 2}
    assert set(sample(x, keys(1).expand(200, 2), at, temperature=0.0).tolist()) == {1}


# ---------------------------------------------------------------- keys


def test_keys_of_seeds_are_those_of_a_bank():
    seeds = [7, 2**64 - 1, 0, -1, 5, 6, 2**63, 8]
    bank = fastseed.random.StreamBank(B, "requests")
    bank.reseed_from_seeds(seeds)
    jobs = [fastseed.Seeder(seed % 2**64, rank=0, world_size=1) for seed in seeds]
    keys = [job.derive_key("sampling", task=0, rank=fastseed.SHARED) for job in jobs]
    before = snapshot()
    assert torch.equal(sample(logits(), bank), tokens(k=bank.keys, at=0))
    expected = tokens(
        k=torch.tensor([divmod(key, 2**64)[::-1] for key in keys], dtype=torch.uint64)
    )
    assert torch.equal(tokens(k=seeds), expected)
    assert torch.equal(
        tokens(k=torch.tensor([(s + 2**63) % 2**64 - 2**63 for s in seeds])), expected
    )
    assert snapshot() == before


@pytest.mark.parametrize("filters", FILTERS[:3])
def test_a_bank_moves_on_by_one_token(filters):
    bank, x = bank_of(B), logits()
    mask = torch.arange(B) % 3 == 1
    rows = torch.tensor([6, 1])
    x[0, 5] = math.nan  # of a row outside of the mask
    at = bank.positions.clone()
    found = sample(x, bank[mask], **filters)
    expected = tokens(x[mask], bank.keys[mask.nonzero()[:, 0]], at[mask], **filters)
    assert torch.equal(found[mask], expected)
    assert not found[~mask].any()
    at += mask
    assert torch.equal(bank.positions, at)
    expected = tokens(x[rows], bank.keys[rows], at[rows], **filters)
    assert torch.equal(sample(x[rows], bank[rows], **filters), expected)
    at[rows] += 1
    assert torch.equal(bank.positions, at)
    with pytest.raises(ValueError, match="logits must have a token to choose in every row"):
        sample(x, bank, **filters)
    assert torch.equal(bank.positions, at)
    expected = tokens(logits(), bank.keys, at, **filters)
    assert torch.equal(sample(logits(), bank, **filters), expected)
    assert torch.equal(bank.positions, at + 1)


def test_a_bank_that_is_refused():
    bank = fastseed.random.StreamBank(B, "bank")
    with pytest.raises(RuntimeError, match=r"fastseed\.sampling\.sample: the bank has no keys yet"):
        sample(logits(), bank)
    bank = bank_of(B)
    says = (
        r"fastseed\.sampling\.sample: positions must be None with a StreamBank \(or give bank.keys"
    )
    for streams in (bank, bank[torch.arange(B)]):
        with pytest.raises(ValueError, match=says):
            sample(logits(), streams, 0)
    with pytest.raises(ValueError, match=r"keys must be of shape \(8, 2\), got \(2, 2\)"):
        sample(logits(), bank[torch.tensor([0, 1])])
    with pytest.raises(TypeError, match=r"sample: positions must be an integer, got None"):
        sample(logits(), bank.keys)
    assert not bank.positions.any()


def test_rows_without_a_seed_take_torchs_generator():
    torch.manual_seed(3)
    first = tokens(torch.zeros(B, V), k=[1, None] * 4, at=0)
    second = tokens(torch.zeros(B, V), k=[1, None] * 4, at=0)
    assert torch.equal(first[::2], second[::2])
    assert (first[1::2] != second[1::2]).any()
    torch.manual_seed(3)
    assert torch.equal(tokens(torch.zeros(B, V), k=[1, None] * 4, at=0), first)
    torch.manual_seed(3)
    whole = sample(torch.zeros(B, V), None, 0)
    assert torch.equal(whole[1::2], first[1::2])


# ---------------------------------------------------------------- results and errors


def test_empty_batches_have_no_tokens():
    none = sample(torch.zeros(0, 5), torch.zeros(0, 2, dtype=torch.uint64), 0, top_k=3, top_p=0.5)
    assert (none.dtype, tuple(none.shape)) == (torch.int64, (0,))


def test_gradients_are_not_recorded():
    x = logits().requires_grad_()
    assert not tokens(x, top_p=0.9).requires_grad


INVALID_ROWS = (
    [-math.inf, -math.inf], [math.nan, 1.0], [1.0, math.inf], [math.nan, math.inf], [-math.nan, 0.0]
)  # fmt: skip


@pytest.mark.parametrize("values", INVALID_ROWS)
@pytest.mark.parametrize("filters", [{}, {"temperature": 0.0}, {"top_k": 1, "top_p": 0.5}])
def test_rows_without_a_token_are_errors(values, filters):
    x = torch.tensor([[1.0, 2.0], values])
    with pytest.raises(
        ValueError, match=r"fastseed\.sampling\.sample: logits must have .* got row 1 with"
    ):
        sample(x, [7, 8], 0, **filters)


ERRORS = (
    ({"x": torch.zeros(B)}, ValueError, "logits must be of shape (B, V), V at least 1, got (8,)"),
    ({"x": torch.zeros(B, 0)}, ValueError, "logits must be of shape (B, V)"),
    ({"x": torch.zeros(1).expand(1, 2**24 + 1)}, ValueError, "logits must be of at most 2**24"),
    ({"x": torch.zeros(B, V, dtype=torch.float64)}, TypeError, "logits must be of dtype torch.flo"),
    ({"k": torch.zeros(3, 2, dtype=torch.uint64)}, ValueError, "keys must be of shape (8, 2)"),
    ({"k": [1, 2]}, ValueError, "keys must be of shape (8,)"),
    ({"k": [None, 2**100] * 4}, ValueError, "keys[1] must be in [-9223372036854775808, 184467440"),
    ({"k": torch.zeros(8, dtype=torch.int64, device="meta")}, ValueError, "keys must have data"),
    ({"k": 5}, TypeError, "keys must be a tensor or a sequence of integers"),
    ({"at": -1}, ValueError, "positions must be in [0, 72057594037927935], got -1"),
    ({"at": torch.full((B,), 2**56)}, ValueError, "positions must be in [0, 72057594037927935]"),
    ({"temperature": -1.0}, ValueError, "temperature must be 0 or in [2**-20, 2**20], got -1.0"),
    ({"temperature": 1e-9}, ValueError, "temperature must be 0 or in [2**-20, 2**20]"),
    ({"temperature": torch.tensor([1.0] * 7 + [math.nan])}, ValueError, "temperature[7] must be 0"),
    ({"temperature": torch.ones(3)}, ValueError, "temperature must be of shape (8,)"),
    ({"temperature": math.nan}, ValueError, "temperature must be 0 or in [2**-20, 2**20], got nan"),
    ({"min_p": -math.inf}, ValueError, "min_p must be in [0, 1], got -inf"),
    ({"top_k": torch.ones(B, dtype=torch.bool)}, TypeError, "top_k must be torch.int64, got"),
    ({"top_p": torch.ones(B, dtype=torch.bool)}, TypeError, "top_p must be torch.float64, got"),
    ({"top_k": -1}, ValueError, "top_k must be 0 (off) or more, got -1"),
    ({"top_k": 2.5}, TypeError, "top_k must be an integer"),
    ({"top_k": torch.ones(B)}, TypeError, "top_k must be torch.int64, got torch.float32"),
    ({"top_p": 0.0}, ValueError, "top_p must be in (0, 1], got 0.0"),
    ({"min_p": 1.5}, ValueError, "min_p must be in [0, 1], got 1.5"),
)  # fmt: skip


@pytest.mark.parametrize(("arguments", "kind", "text"), ERRORS)
def test_errors_name_the_argument(arguments, kind, text):
    with pytest.raises(kind) as error:
        tokens(**arguments)
    assert str(error.value).startswith(f"fastseed.sampling.sample: {text}")


def tokens_of_every_kind(x, keys, positions, temperature, top_p):
    return (
        sample(x, keys, positions),
        sample(x, keys, positions, temperature=0.7, top_k=20, top_p=0.9, min_p=0.01),
        sample(x, keys, positions, temperature=temperature, top_p=top_p),
        sample(x, keys, 5, top_p=0.8),
        sample(x.bfloat16(), keys, positions, temperature=0.0),
    )


def verified(drafted, target, keys, positions):
    return accept_equal(drafted, target, keys, positions, top_p=0.8)


def wrong_in_compiled_code(backend):
    """Return what differs, and how many tensors were compared."""
    torch.manual_seed(0)
    wrong, compared = [], 0
    twins = {
        f: torch.compile(f, fullgraph=True, backend=backend)
        for f in (tokens_of_every_kind, verified)
    }
    # Each new shape compiles once more, which takes inductor a minute.
    shapes = ((2, 80), (3, 90), (5, 200))
    for n, size in shapes[:1] if backend == "inductor" else shapes:
        keys = torch.randint(-(2**63), 2**63 - 1, (n, 2)).view(torch.uint64)
        keyed = keys, torch.randint(0, 2**40, (n,))
        heat, share = torch.linspace(0.5, 2, n), torch.linspace(0.3, 1, n).double()
        drafted, target = torch.randint(0, size, (n, 3)), torch.randn(n, 4, size)
        for function, given in (
            (tokens_of_every_kind, (torch.randn(n, size) * 3, *keyed, heat, share)),
            (verified, (drafted, target, *keyed)),
        ):
            pairs = zip(function(*given), twins[function](*given), strict=True)
            agree = [torch.equal(eager, compiled) for eager, compiled in pairs]
            compared += len(agree)
            if not all(agree):
                wrong.append((function.__name__, n, agree))
    return wrong, compared


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "count"), [("aot_eager", 21), ("inductor", 7)])
def test_compiled_sampling_has_the_eager_bits(backend, count):
    assert alone(wrong_in_compiled_code, backend) == ([], count)
