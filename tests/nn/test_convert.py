"""Models of others: which dropout is replaced, under which names, and what is refused."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers.support import restart
from torch import nn
from torch.distributed.pipelining import SplitPoint, pipeline
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

import fastseed
from fastseed._utils import log
from fastseed.nn import convert, revert
from fastseed.random.dropout import attend

pytestmark = pytest.mark.usefixtures("seeded")


class Attention(nn.Module):
    def forward(self, x):
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        p = 0.2 if self.training else 0.0
        found = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=p, is_causal=True)
        found = F.dropout(found.transpose(1, 2).flatten(2), 0.1, self.training)
        return F.dropout(found.sin(), 0.1, self.training)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.up, self.drop = nn.Linear(8, 8), nn.Dropout(0.3)
        self.again = self.drop

    def forward(self, x):
        x = x + self.attention(x)
        return self.again(self.up(self.drop(x)))


def model(layers=2):
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(layers))).train()


X = torch.linspace(-1, 1, 4 * 6 * 8).view(4, 6, 8)


def names(found):
    return {m.key_name.name for m in found.modules() if isinstance(m, fastseed.nn.Dropout)}


def test_layers_have_the_names_of_their_places():
    found = convert(model())
    assert names(found) == {"0.drop", "0.again", "1.drop", "1.again"}
    assert names(convert(model(1), prefix="stage.3")) == {"stage.3.0.drop", "stage.3.0.again"}
    assert names(convert(nn.Dropout(0.5), prefix="a")) == {"a"}
    assert isinstance(found[0], Block) and type(found[0]).__name__ == "Block"
    own = fastseed.nn.Dropout(0.5, name="mine")
    assert names(convert(nn.Sequential(own, fastseed.nn.Dropout(0.5)))) == {"mine", "1"}
    assert names(convert(convert(model()))) == names(found)


def test_every_dropout_follows_the_key_alone():
    found = convert(model())
    first = found(X)
    restart()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert torch.equal(found(X), first)
    assert torch.equal(torch.get_rng_state(), state), "torch's generator is not used"
    restart(step=1)
    assert not torch.equal(found(X), first)
    assert torch.equal(found.eval()(X), model().eval()(X))


@pytest.mark.costly("compiles")
def test_compiled_model_equals_the_model():
    found = convert(model())
    compiled = torch.compile(found, fullgraph=True, backend="aot_eager")
    assert names(convert(compiled)) == names(found)
    for step in range(3):
        restart(step)
        expected = found(X)
        restart(step)
        assert torch.equal(compiled(X), expected)


def test_a_model_of_its_own_class_is_compiled_without_an_eager_pass():
    """In each thread: the calls in force belong to one."""
    torch._dynamo.reset()
    found = convert(Block())
    compiled = torch.compile(found, fullgraph=True, backend="eager")
    results = [compiled(X)]
    with ThreadPoolExecutor(1) as other:
        results.append(other.submit(compiled, X).result())
    restart()
    assert torch.equal(found(X), results[0]) and torch.equal(results[1], results[0])


def test_converted_models_are_copied_and_pickled():
    found = convert(model())
    expected = found(X)
    for other in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        restart()
        assert torch.equal(other(X), expected)
        assert list(other.state_dict()) == list(model().state_dict())


def test_revert_gives_the_model_back():
    found = revert(convert(model()))
    for pair in zip(
        found.named_modules(remove_duplicate=False),
        model().named_modules(remove_duplicate=False),
        strict=True,
    ):
        (name, m), (other_name, other) = pair
        assert name == other_name and type(m) is type(other) and set(vars(m)) == set(vars(other))
    torch.manual_seed(3)
    first = found(X)
    torch.manual_seed(3)
    assert torch.equal(found(X), first), "torch's generator is used again"


def test_revert_leaves_a_parametrization_on_a_module():
    found = convert(Attention())
    found.register_parameter("weight", nn.Parameter(torch.ones(2)))
    nn.utils.parametrize.register_parametrization(found, "weight", nn.Softplus())
    with pytest.raises(RuntimeError, match="Serialization of parametrized modules"):
        pickle.dumps(found)
    weight = found.weight
    assert torch.equal(copy.deepcopy(found).weight, weight)
    assert torch.equal(revert(found).weight, weight) and isinstance(found, Attention)
    nn.utils.parametrize.remove_parametrizations(found, "weight")
    assert type(found) is Attention and torch.equal(found.weight, weight)


def test_a_parametrization_from_before_can_be_removed():
    found = nn.Sequential(nn.MultiheadAttention(4, 2, dropout=0.5))
    nn.utils.parametrize.register_parametrization(found[0], "in_proj_weight", nn.Softplus())
    weight, copied = found[0].in_proj_weight, copy.deepcopy(convert(found))
    for model, is_ours in ((found, True), (revert(copied), False)):
        nn.utils.parametrize.remove_parametrizations(model[0], "in_proj_weight")
        assert torch.equal(model[0].in_proj_weight, weight)
        assert hasattr(type(model[0]), "fastseed_original") == is_ours
    assert type(copied[0]) is type(revert(found)[0]) is nn.MultiheadAttention


class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.call(x)


GRU = {"bidirectional": False, "batch_first": False}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: F.alpha_dropout(x, 0.5, True), "alpha_dropout"),
        (lambda x: F.feature_alpha_dropout(x, 0.5, training=True), "feature_alpha_dropout"),
        (lambda x: torch.native_dropout(x, 0.5, True), "native_dropout"),
        (lambda x: torch.dropout_(x.clone(), 0.5, True), "dropout_"),
        (lambda x: F.rrelu(x, training=True), "rrelu"),
        (lambda x: torch.rrelu_(x.clone(), 0.1, 0.3, True), "rrelu_"),
        (lambda x: nn.LSTM(8, 8, 2, dropout=0.1)(x)[0], "lstm"),
        (lambda x: nn.GRU(8, 8, 2, dropout=0.1)(pack_sequence(list(x)))[0], "gru"),
        (lambda x: torch.gru(x, x, [], True, 2, 0.1, train=True, **GRU), "gru"),
        (lambda x: torch.gru(x, x, [], True, 2, dropout=0.1, train=True, **GRU), "gru"),
    ],
)
def test_calls_without_a_key_are_refused(call, name):
    found = convert(nn.Sequential(Calls(call)))
    with pytest.raises(RuntimeError, match=f"{name} in the forward of '0' would draw from torch's"):
        found(X)


def test_calls_that_draw_nothing_are_left_alone():
    calls = (
        lambda x: F.alpha_dropout(x, 0.5),
        lambda x: F.dropout(x, 0.0) + torch.dropout(x, 0.5, False),
        lambda x: nn.MultiheadAttention(8, 2)(x, x, x)[0],
        lambda x: F.rrelu(x),
        lambda x: nn.LSTM(8, 8, 2)(x)[0],
        lambda x: nn.GRU(8, 8, 2, dropout=0.1).eval()(pack_sequence(list(x)))[0],
        lambda x: F.scaled_dot_product_attention(x, x, x, None, 0.0),
    )
    for call in calls:
        torch.manual_seed(0)  # of the layers that the calls make
        expected = call(X)
        torch.manual_seed(0)
        found = convert(Calls(call))(X)
        assert torch.equal(*(getattr(one, "data", one) for one in (found, expected)))


def test_channels_and_forms_of_calls():
    found = convert(Calls(lambda x: F.dropout1d(x, p=0.5)))(torch.ones(4, 6, 8))
    assert set(found.sum(-1).unique().tolist()) == {0.0, 16.0}
    restart()
    kept = convert(Calls(lambda x: torch.dropout(x, 0.5, train=True)))(torch.ones(4, 6))
    restart()
    again = convert(Calls(lambda x: F.dropout(input=x, inplace=True)))(torch.ones(4, 6))
    assert torch.equal(kept, again)
    restart()
    again = convert(Calls(F.dropout)).eval()(torch.ones(4, 6))  # which draws in evaluation, too
    assert torch.equal(kept, again)


def test_the_calls_of_one_forward_are_numbered():
    def calls(x):
        x = F.dropout(F.dropout(x, 0.0), 0.5)  # what draws nothing has no number
        x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        return F.scaled_dot_product_attention(F.dropout(x, 0.5), x, x, dropout_p=0.5)

    found = convert(nn.Sequential(Calls(calls), Calls(calls)))
    expected = found(X)
    with pytest.raises(RuntimeError, match="'0/dropout' is used a second time"):
        found(X)
    restart()
    x = X
    for name in ("0", "1"):
        layers = [fastseed.nn.Dropout(0.5, name=f"{name}/dropout{end}") for end in ("", ".1")]
        weights = [fastseed.nn.Dropout(0.5, name=f"{name}/attention{end}") for end in ("", ".1")]
        x = layers[0](x)
        x = attend("nn.convert", weights[0], x, x, x)
        x = attend("nn.convert", weights[1], layers[1](x), x, x)
    assert torch.equal(x, expected)


class DropPath(nn.Module):
    def forward(self, x):
        return x * x.new_empty(len(x), 1, 1).bernoulli_(0.5) if self.training else x


KEPT = torch.Generator()


def test_other_draws_of_a_converted_forward_are_warned_of_once(caplog):
    log.warn_once.cache_clear()
    keyed = fastseed.random.keyed("mask", index=0)

    def quiet(x):
        with keyed:
            x = x * torch.rand(1)
        x = x + torch.rand(1, generator=KEPT)
        return x * F.dropout(x.new_ones(len(x), *[1] * (x.dim() - 1)), 0.5) + F.dropout(x, 0.0)

    convert(nn.Sequential(DropPath().eval(), Calls(quiet)))(X)
    torch.nn.Sequential(DropPath())(X)
    assert not caplog.records
    found = convert(nn.Sequential(DropPath(), DropPath(), Calls(lambda x: x * torch.rand(1))))
    for run in (found, torch.compile(found, backend="eager", fullgraph=True)):
        run(X)
        restart()
    texts = [record.getMessage() for record in caplog.records if "nn.convert" in record.message]
    assert [text.split(" still ")[0].split(": ")[1] for text in texts] == [
        "bernoulli_ in the forward of DropPath",
        "rand in the forward of Calls",
    ]
    assert all("with fastseed.random.keyed(name)" in text for text in texts)


def test_classes_of_users_are_not_told_of_ours():
    told = []

    class Base(nn.Module):
        def __init_subclass__(cls, key, **options):
            told.append((key, cls))

    class Model(Base, key="model"):
        def forward(self, x):
            return F.dropout(x)

    found = convert(Model())
    assert told == [("model", Model)]
    assert type(found) is not Model and isinstance(found, Model)
    assert type(revert(found)) is Model


def test_attention_is_that_of_torch_without_dropout():
    q, k, v = (torch.randn(2, heads, 5, 4) for heads in (4, 2, 2))
    mask = torch.rand(5, 5) < 0.6
    for options in (
        {},
        {"is_causal": True, "scale": 0.3},
        {"attn_mask": mask},
        {"attn_mask": torch.randn(5, 5)},
    ):
        expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
        found = attend("nn.convert", lambda w: w, q, k, v, enable_gqa=True, **options)
        torch.testing.assert_close(found, expected)


class Lazy(nn.modules.lazy.LazyModuleMixin, Attention):
    cls_to_become = Attention

    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter()


REFUSED = {
    "'1' (Lazy): torch will replace its class; run it once before": Lazy(),
    "'1' (LSTM): set its dropout to 0": nn.LSTM(4, 4, 2, dropout=0.5),
    "'1' (RReLU): use nn.LeakyReLU": nn.RReLU(),
    "'1' (AlphaDropout): set its p to 0": nn.AlphaDropout(0.1),
}


@pytest.mark.parametrize(("says", "module"), REFUSED.items(), ids=REFUSED)
def test_modules_without_a_keyed_form_are_refused_with_what_to_do(says, module):
    whole = nn.Sequential(nn.Dropout(0.1), module, nn.LazyLinear(1))
    with pytest.raises(ValueError, match=r"convert: model must be without dropout ") as refused:
        convert(whole)
    assert str(refused.value).endswith(f"got {says}")
    assert type(whole[0]) is nn.Dropout


def test_a_layer_in_two_places_becomes_two_layers_that_share_nothing():
    drop = nn.Dropout(0.1)
    found = convert(nn.Sequential(drop, drop))
    found[0].register_forward_hook(lambda *_: None)
    assert len(found[0]._forward_hooks) == 1 and not found[1]._forward_hooks


def test_replicas_of_data_parallel_are_refused():
    for found in (nn.DataParallel(nn.Dropout(0.5)), nn.Sequential(nn.DataParallel(nn.Dropout()))):
        with pytest.raises(ValueError, match="use DistributedDataParallel"):
            convert(found)
        assert not any(isinstance(m, fastseed.nn.Dropout) for m in found.modules())


def test_inputs_of_a_module_without_dropout_are_not_sharded():
    with pytest.raises(ValueError, match="module must be one with dropout"):
        fastseed.nn.shard_inputs(nn.Linear(1, 1), None, [])


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_model_follows_the_job_in_its_process(strict, caplog):
    log.warn_once.cache_clear()
    found = convert(nn.Sequential(nn.Dropout(0.5), Calls(F.dropout)))
    with fastseed.nn.label("exported"):
        exported = torch.export.export(found, (X,), strict=strict).module()
        assert caplog.text.count("saved and loaded, it repeats the random numbers") == 1
        for step in range(2):
            restart(step=step)
            with fastseed.nn.rows(2 * step, 9):
                drawn = exported(X)
                assert torch.equal(drawn, found(X))
    with pytest.raises(RuntimeError, match="must run with the label of its export"):
        exported(X)
    log.warn_once.cache_clear()
    torch.export.export(found[:1].eval(), (X,), strict=strict)
    assert caplog.text.count("saved and loaded") == 1


@pytest.mark.filterwarnings("ignore:.*LeafSpec")
def test_stages_of_torchs_pipelining_follow_the_job():
    found = convert(nn.Sequential(nn.Dropout(0.5), Calls(F.dropout)))
    pipe = pipeline(found, (X,), split_spec={"1": SplitPoint.BEGINNING})
    for step in range(2):
        restart(step=step)
        with fastseed.nn.rows(2 * step, 9):
            drawn = pipe.get_stage_module(1)(pipe.get_stage_module(0)(X))
            assert torch.equal(drawn, found(X))


SIZES = {
    "GPT2": {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 8},
    "Bert": {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8},
    "OPT": {"num_hidden_layers": 1, "hidden_size": 8, "word_embed_proj_dim": 8, "ffn_dim": 8},
    "Bart": {"d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8},
    "Whisper": {"d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "dropout": 0.1},
    "Wav2Vec2": {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8},
}
MORE = {
    "Whisper": {"num_mel_bins": 4, "max_source_positions": 4, "max_target_positions": 8},
    "Wav2Vec2": {
        **{"conv_dim": (8,), "conv_stride": (2,), "conv_kernel": (3,), "layerdrop": 0.0},
        **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0},
    },
}
HEADS = ("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads")
LAYERS = ("encoder_layers", "decoder_layers")


@pytest.mark.integrations
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", SIZES)
def test_models_of_transformers(kind, implementation):
    transformers = pytest.importorskip("transformers")
    sizes = {**dict.fromkeys(HEADS, 2), **dict.fromkeys(LAYERS, 1), **SIZES[kind]}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}
    options = {**sizes, **MORE.get(kind, {}), **ids, "attention_dropout": 0.1}
    config = getattr(transformers, f"{kind}Config")
    config = config(vocab_size=50, attn_implementation=implementation, **options)
    tokens = torch.arange(3, 15).view(2, 6)
    given = {
        "Whisper": (torch.linspace(-1, 1, 64).view(2, 4, 8), None, tokens),
        "Wav2Vec2": (torch.linspace(-1, 1, 40).view(2, 20),),
    }.get(kind, (tokens,))
    build = getattr(transformers, f"{kind}Model")
    found = convert(build(config)).train()

    def run(model=found, step=0):
        restart(step)
        found.zero_grad()
        torch.rand(1)
        out = model(*given)[0]
        out.square().sum().backward()
        grads = (torch.zeros_like(p) if p.grad is None else p.grad for p in found.parameters())
        return [out.detach(), *grads]

    first = run()
    torch.testing.assert_close(run(), first, rtol=0, atol=0)
    assert not torch.equal(run(step=1)[0], first[0])
    restart(0)
    for row in range(2):  # micro-batches
        with fastseed.nn.rows(row, 2, count=1):
            part = found(*(one if one is None else one[row : row + 1] for one in given))[0]
        torch.testing.assert_close(part[0], first[0][row])
    for reentrant in (True, False):
        options = {"use_reentrant": reentrant, "preserve_rng_state": False}
        found.gradient_checkpointing_enable(options)
        torch.testing.assert_close(run(), first)
    found.gradient_checkpointing_disable()
    torch.testing.assert_close(run(torch.compile(found, backend="aot_eager")), first)
    names = [[str(type(m)) for m in model.modules()] for model in (revert(found), build(config))]
    assert names[0] == names[1] and not hasattr(found, "fastseed_calls")
