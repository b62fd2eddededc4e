"""``nn.MultiheadAttention`` and torch's Transformer layers in converted models."""

import copy
import pickle

import pytest
import torch
from helpers.support import restart
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed._backend import private_torch
from fastseed.nn import convert, revert
from fastseed.random.dropout_calls import HEADS

pytestmark = pytest.mark.usefixtures("seeded")

X = torch.linspace(-1, 1, 4 * 6 * 8).view(4, 6, 8)
CAUSAL = nn.Transformer.generate_square_subsequent_mask(6)
PADDED = torch.arange(6) >= torch.tensor([[6], [3], [5], [1]])
SIZES = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True}


def heads(p=0.4, **options):
    torch.manual_seed(0)
    return nn.MultiheadAttention(8, 2, p, **{"batch_first": True, **options})


def transformer():
    torch.manual_seed(0)
    return nn.Transformer(8, 2, 1, 1, 16, batch_first=True)


def of_row(mask, row):
    """Return the mask of a sample, whose inputs have no dimension for the batch."""
    if mask is True or mask is CAUSAL:
        return mask
    return mask.unflatten(0, (4, -1))[row].squeeze(0)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    ("options", "inputs"),
    [
        ({}, {}),
        ({"bias": False, "batch_first": False}, {}),
        ({"add_zero_attn": True}, {"key_padding_mask": PADDED}),
        ({"add_bias_kv": True}, {"attn_mask": CAUSAL}),
        ({}, {"attn_mask": CAUSAL, "is_causal": True}),
        ({}, {"attn_mask": torch.arange(8 * 36).view(8, 6, 6) % 7 == 6}),
    ],
)
def test_weights_of_attention_are_dropped_by_row_head_and_place(options, inputs, need_weights):
    """The same for both ways in which torch computes it, and for every order of dimensions."""
    x = X if options.get("batch_first", True) else X.transpose(0, 1)
    plain, found = heads(0.0, **options), convert(heads(**options), prefix="a")
    state = torch.get_rng_state()
    _, weights = plain(x, x, x, average_attn_weights=False, **inputs)
    out, dropped = found(x, x, x, need_weights=need_weights, average_attn_weights=False, **inputs)
    key = fastseed.derive_key("dropout/a/attention", task=1, step=0, rank=fastseed.SHARED)
    wanted = fastseed.nn.functional.dropout(weights, 0.4, key)
    assert (wanted == 0).any() and torch.equal(torch.get_rng_state(), state)
    if need_weights:
        torch.testing.assert_close(dropped, wanted)
    restart()
    for row, part in enumerate(X):
        one = {name: of_row(mask, row) for name, mask in inputs.items()}
        with fastseed.nn.rows(row, len(X)):
            alone = found(part, part, part, **one)[0]
        torch.testing.assert_close(alone, out[row] if x is X else out[:, row])


def test_a_transformer_follows_the_key_alone_in_any_micro_batches():
    found, target = convert(transformer()), X.flip(0)
    drops = {m.key_name.name for m in found.modules() if isinstance(m, fastseed.nn.Dropout)}
    assert {"encoder.layers.0.dropout", "decoder.layers.0.dropout3"} <= drops
    whole = found(X, target)
    assert not torch.equal(whole, copy.deepcopy(found).eval()(X, target))
    restart()
    state = torch.get_rng_state()
    for start in (0, 1):
        with fastseed.nn.rows(start, 4, step=2):
            part = found(X[start::2], target[start::2])
        torch.testing.assert_close(part, whole[start::2])
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(RuntimeError, match=r"'encoder.layers.0.self_attn/attention' is used a sec"):
        found(X, target)
    restart(step=1)
    assert not torch.equal(found(X, target), whole)


def test_recomputation_repeats_the_masks():
    def gradients(run):
        restart()
        found.zero_grad()
        run().square().sum().backward()
        return [parameter.grad.clone() for parameter in found.parameters()]

    found = convert(nn.TransformerEncoderLayer(**SIZES))
    wanted = gradients(lambda: found(X))
    options = {"use_reentrant": False, "preserve_rng_state": False}
    for expected, grad in zip(
        wanted, gradients(lambda: checkpoint(found, X, **options)), strict=True
    ):
        assert torch.equal(grad, expected)


@pytest.mark.costly("compiles")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_layers_equal_the_eager_ones(backend):
    torch._dynamo.reset()
    layer, each = convert(nn.TransformerEncoderLayer(**SIZES)), convert(heads(), prefix="heads")
    runs = [layer, lambda x: each(x, x, x, attn_mask=CAUSAL)[0]]
    for run in runs:
        compiled = torch.compile(run, fullgraph=True, backend=backend)
        for step in (1, 2):
            restart(step)
            expected = run(X)
            restart(step)
            torch.testing.assert_close(compiled(X), expected)


def test_state_copies_and_revert():
    plain = transformer()
    shared, names = {id(p) for p in plain.parameters()}, list(plain.state_dict())
    found = convert(plain)
    assert {id(p) for p in found.parameters()} == shared and list(found.state_dict()) == names
    expected = found(X, X)
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        restart()
        assert torch.equal(other(X, X), expected)
    for module, other in zip(revert(found).modules(), transformer().modules(), strict=True):
        assert type(module) is type(other) and set(vars(module)) == set(vars(other))


class Holds(nn.Module):
    """A model whose own forward runs in the mode that replaces calls."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(**SIZES)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.attend = heads()

    def forward(self, x, padded=None):
        x = self.encoder(x, src_key_padding_mask=padded)
        return F.dropout(self.attend(x, x, x)[0], 0.1, self.training)


def test_eval_is_torchs_own_with_its_fast_path():
    torch.manual_seed(0)
    plain = Holds().eval()
    found = convert(copy.deepcopy(plain))
    with torch.no_grad():
        for padded in (None, PADDED):  # which the fast path leaves out
            assert torch.equal(found(X, padded), plain(X, padded))
        with torch.profiler.profile() as profile:
            found(X)
    used = {event.key for event in profile.key_averages()}
    fast = {"aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"}
    assert fast <= used and torch.overrides._get_current_function_mode_stack() == []
    assert torch.equal(found(X), plain(X)), "with gradients"
    compiled = torch.compile(found, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(X), plain(X))


def test_a_functional_call_has_the_name_of_the_module_that_makes_it():
    class Pools(nn.Module):
        def forward(self, x):
            weights = torch.zeros(24, 8), None, None, None, False, 0.5, torch.eye(8), None
            return F.multi_head_attention_forward(x, x, x, 8, 2, *weights)[1]

    found = convert(Pools(), prefix="pool")(X)
    key = fastseed.derive_key("dropout/pool/attention", task=1, step=0, rank=fastseed.SHARED)
    ones = fastseed.nn.functional.dropout(torch.ones(6, 2, 4, 4), 0.5, key)
    assert torch.equal(found == 0, ones.mean(1) == 0)


def test_compiled_code_of_torch_does_not_stand_for_that_with_other_names():
    """Dynamo finds what it compiled by the code, whatever its names mean."""
    torch._dynamo.reset()
    names = {"dropout": lambda weights, p: weights * p, "has_torch_function": lambda _: False}
    weights = torch.zeros(24, 8), None, None, None, False, 0.5, torch.eye(8), None
    for function in (HEADS, private_torch.with_names(HEADS, **names)):
        found = torch.compile(function, backend="eager")(X, X, X, 8, 2, *weights)[1]
    assert torch.equal(found, torch.full((6, 4, 4), 0.5 / 4))
