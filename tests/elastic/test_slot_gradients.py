"""SlotGradients in one process: which mean it leaves, for which models."""

import copy
import gc
import math
from fractions import Fraction

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fastseed
from fastseed.elastic import SlotGradients
from fastseed.elastic.tree import TreeSum

V = 6


def batches(count=V, rows=4, width=5):
    return list(torch.randn(count, rows, width, generator=torch.Generator().manual_seed(1)))


def loss_of(model, batch):
    return model(batch).square().mean()


def run_step(gradients, model, data, loss=loss_of):
    for _, batch in gradients.step(data):
        loss(model, batch).backward()


def expected_means(model, data, loss=loss_of, divisor=None):
    """Gradients of copies of the model, added by the rule."""
    sums = {name: TreeSum() for name, _ in model.named_parameters()}
    for batch in data:
        other = copy.deepcopy(model)
        loss(other, batch).backward()
        for name, p in other.named_parameters():
            wide = torch.float64 if p.dtype == torch.float64 else torch.float32
            leaf = torch.zeros(p.shape, dtype=wide) if p.grad is None else p.grad.to(wide).clone()
            sums[name].push(leaf)
    return {name: tree.result() / (divisor or len(data)) for name, tree in sums.items()}


def assert_means(model, expected):
    for name, p in model.named_parameters():
        assert p.grad.dtype == p.dtype and p.grad.stride() == p.stride()
        assert torch.equal(p.grad, expected[name].to(p.dtype)), name


def mlp(**options):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7, **options), nn.Tanh(), nn.Linear(7, 2, **options))


@pytest.mark.parametrize("bucket_mb", [1e-6, 1e-4, 25])
@pytest.mark.parametrize("slots", [1, 2, 3, 6, 7])
def test_mean_is_that_of_the_tree_whatever_the_buckets(slots, bucket_mb):
    model, data = mlp(), batches(slots)
    expected = expected_means(model, data)
    gradients = SlotGradients(model, slots, bucket_mb=bucket_mb)
    for _ in range(2):
        run_step(gradients, model, data)
        assert_means(model, expected)
        model.zero_grad()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_leaves_are_float32_or_float64(dtype):
    model, data = mlp(dtype=dtype), [batch.to(dtype) for batch in batches()]
    expected = expected_means(model, data)
    run_step(SlotGradients(model, V), model, data)
    assert_means(model, expected)
    in_order = sum(leaf_gradients(model, data)) / V  # in dtype
    assert not torch.equal(model[0].weight.grad, in_order)


def leaf_gradients(model, data):
    for batch in data:
        other = copy.deepcopy(model)
        loss_of(other, batch).backward()
        yield other[0].weight.grad


def test_weights_divide_the_sum_once_by_their_sum():
    model, data = mlp(), batches()
    expected = expected_means(model, data, divisor=3.0 + 1e-3)
    for slot, batch in SlotGradients(model, V).step(data):
        loss_of(model, batch).backward()
        slot.weight = torch.tensor(3) if slot.number == 0 else 1e-3 if slot.number == 4 else 0
    assert_means(model, expected)


@pytest.mark.parametrize(("slots", "leaves"), [(1, 2), (2, 3), (7, 4), (8, 5)])
def test_memory_grows_with_the_logarithm_of_the_slots(slots, leaves):
    model, most = nn.Linear(1009, 1, bias=False), 0
    for _, batch in SlotGradients(model, slots).step(torch.ones(slots, 1, 1009)):
        model(batch).sum().backward()
        flat = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == (1009,)]
        most = max(most, len({t.data_ptr() for t in flat}))
    assert 1 <= most <= leaves


def test_the_sum_of_the_weights_is_rounded_once():
    model, weights = nn.Linear(1, 1, bias=False), [2.0**24, 1.0, 2.0**-40]
    for slot, batch in SlotGradients(model, 3).step(
        list(torch.tensor([[[1.0]], [[0.0]], [[0.0]]]))
    ):
        model(batch).sum().backward()
        slot.weight = weights[slot.number]
    assert model.weight.grad == 1 / torch.tensor(16777218.0)  # fsum would give 16777216


@pytest.mark.parametrize("payload", [0x7FC00001, 0xFFC00000])
def test_all_nan_have_the_same_bits(payload):
    nan = torch.tensor([payload - (payload >> 31 << 32)], dtype=torch.int32).view(torch.float32)
    tree = TreeSum()
    tree.push(torch.cat([nan, torch.tensor([math.inf, -math.inf, 3.0])]))
    mean = tree.mean(Fraction(2))
    assert mean.view(torch.int32)[0] == 0x7FC00000
    assert mean.tolist()[1:] == [math.inf, -math.inf, 1.5]


def test_strides_of_gradients_are_those_of_parameters():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    data = list(torch.randn(V, 2, 3, 5, 5))
    expected = expected_means(model, data)
    run_step(SlotGradients(model, V), model, data)
    assert_means(model, expected)


# ---------------------------------------------------------------- parameters that differ by slot


class Experts(nn.Module):
    """A router by the first element, a tied head, a frozen and an unused parameter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(5, 5, bias=False)
        self.experts = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.head = nn.Linear(5, 5, bias=False)
        self.head.weight = self.embed.weight
        self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(5))

    def forward(self, x):
        expert = self.experts[0 if x[0, 0] < 0 else 1]
        return self.head(expert(self.embed(x) * self.frozen))


def test_slots_without_a_gradient_are_leaves_of_zero():
    model, data = Experts(), batches()
    assert len({bool(batch[0, 0] < 0) for batch in data}) == 2
    expected = expected_means(model, data)
    run_step(SlotGradients(model, V), model, data)
    for name, p in model.named_parameters():
        if name in ("frozen", "unused") or name.startswith("experts.2"):
            assert p.grad is None
        else:
            assert torch.equal(p.grad, expected[name]), name


def test_an_unused_parameter_is_unused_again_in_the_next_step():
    model = Experts()
    gradients = SlotGradients(model, V)
    run_step(gradients, model, batches())
    model.zero_grad()
    run_step(gradients, model, [batch.abs() for batch in batches()])
    assert model.experts[0].weight.grad is None and model.experts[1].weight.grad is not None


# ---------------------------------------------------------------- how the passes run


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_has_the_same_mean(reentrant):
    model, data = mlp(), batches()

    def loss(model, batch):
        hidden = checkpoint(model[0], batch.requires_grad_(), use_reentrant=reentrant)
        return checkpoint(model[1:], hidden, use_reentrant=reentrant).square().mean()

    expected = expected_means(model, [batch.clone() for batch in data])
    run_step(SlotGradients(model, V), model, data, loss)
    assert_means(model, expected)


def test_compiled_models_have_the_mean_of_their_gradients():
    fastseed.init(42)
    fastseed.reseed(1)
    model = mlp()
    model.insert(2, fastseed.nn.Dropout(0.5, name="x"))
    plain, data = copy.deepcopy(model), batches()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    run_step(SlotGradients(compiled, V), compiled, data)
    fastseed.reseed(1)
    run_step(SlotGradients(plain, V), plain, data)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


def test_autocast_has_float32_leaves():
    model, data = mlp(), batches()

    def loss(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, batch)

    expected = expected_means(model, data, loss)
    with torch.autocast("cpu", torch.bfloat16):  # with its cache of weights over all slots
        run_step(SlotGradients(model, V), model, data)
    assert_means(model, expected)


def test_grad_scaler_skips_a_step_with_inf_in_one_slot():
    model, data = mlp(), batches()
    gradients, scaler = SlotGradients(model, V), torch.amp.GradScaler("cpu", init_scale=2.0**20)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = copy.deepcopy(model.state_dict())
    for step in range(2):
        for slot, batch in gradients.step(data):
            loss = loss_of(model, batch)
            scaler.scale(loss * float("inf") if (step, slot.number) == (0, 4) else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        equal = [torch.equal(p, before[name]) for name, p in model.state_dict().items()]
        assert all(equal) if step == 0 else not any(equal)
    assert scaler.get_scale() == 2.0**19


def test_gradient_penalty_needs_no_second_backward():
    model, data = mlp(), batches()

    def loss(model, batch):
        batch = batch.clone().requires_grad_()
        out = model(batch).square().mean()
        (slope,) = torch.autograd.grad(out, batch, create_graph=True)
        return out + slope.square().sum()

    expected = expected_means(model, data, loss)
    gradients = SlotGradients(model, V)
    run_step(gradients, model, data, loss)
    assert_means(model, expected)
    torch.autograd.grad(loss_of(model, data[0]), list(model.parameters()))  # reaches no p.grad


def test_dropout_is_that_of_the_whole_batch():
    fastseed.init(42)
    layer = fastseed.nn.Dropout(0.5, name="x")
    fastseed.reseed(1)
    whole = layer(torch.ones(V * 4, 8))
    fastseed.reseed(1)
    model, masks = nn.Sequential(nn.Linear(8, 8), layer), []
    for _, batch in SlotGradients(model, V).step(list(torch.ones(V, 4, 8))):
        masks.append(layer(batch))
        model[0](batch).sum().backward()
    assert torch.equal(torch.cat(masks), whole)


def test_the_model_is_free_when_the_object_is_gone():
    model = mlp()
    gradients = SlotGradients(model, V)
    del gradients
    gc.collect()
    loss_of(model, batches()[0]).backward()
    assert all(p.grad is not None for p in model.parameters())


# ---------------------------------------------------------------- buffers


def normed(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, **options))
    model.register_buffer("constant", torch.tensor([0.1, float("inf")]))
    return model


@pytest.mark.parametrize("momentum", [0.1, None])
def test_buffers_end_with_the_mean_in_tree_order(momentum):
    model, data = normed(momentum=momentum), batches()
    gradients = SlotGradients(model, V)
    for step in range(2):
        start = copy.deepcopy(model)
        run_step(gradients, model, data)
        sums = {"running_mean": TreeSum(), "running_var": TreeSum()}
        for batch in data:
            other = copy.deepcopy(start)
            other(batch)
            for name, tree in sums.items():
                tree.push(getattr(other[1], name).clone())
        for name, tree in sums.items():
            assert torch.equal(getattr(model[1], name), tree.result() / V)
        assert model[1].num_batches_tracked == step + 1
        assert torch.equal(model.constant, torch.tensor([0.1, float("inf")]))
        model.zero_grad()


def test_a_buffer_may_be_expanded():
    model = mlp()
    model.register_buffer("positions", torch.arange(3).expand(4, 3))
    run_step(SlotGradients(model, V), model, batches())
    assert torch.equal(model.positions, torch.arange(3).expand(4, 3))


class Counting(nn.Module):
    """Replaces a float buffer, and adds to one of integers."""

    def __init__(self, of_slot):
        super().__init__()
        self.linear, self.of_slot = nn.Linear(5, 2), of_slot
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        self.scale = self.scale + x.mean().abs().detach()
        self.seen += int(x[0, 0] < 0) if self.of_slot else 2
        return self.linear(x) * self.scale


def test_replaced_buffers_have_the_mean_too():
    model, data = Counting(False), batches()
    run_step(SlotGradients(model, V), model, data)
    tree = TreeSum()
    for batch in data:
        tree.push(torch.ones(1) + batch.mean().abs())
    assert torch.equal(model.scale, tree.result() / V) and model.seen == 2


def test_a_constant_buffer_is_not_written():
    model = normed()
    run_step(SlotGradients(model, V), model, batches())
    assert model.constant._version == 0


class Swapping(nn.Module):
    """Writes a buffer, and leaves another one with the value at the start."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        before = self.scale.clone()
        out = self.linear(x) * before
        self.scale.mul_(2)
        self.scale = before
        return out


def test_a_buffer_that_is_written_and_replaced_is_given_back():
    model = Swapping()
    scale = model.scale
    run_step(SlotGradients(model, V), model, batches())
    assert model.scale is scale and scale == 1


def test_integers_that_depend_on_the_slot_are_an_error():
    model = Counting(True)
    gradients = SlotGradients(model, V)
    with pytest.raises(RuntimeError, match=r"different values in the buffers \['seen'\]"):
        run_step(gradients, model, batches())
    assert model.seen == 0 and model.scale == 1 and model.linear.weight.grad is None
