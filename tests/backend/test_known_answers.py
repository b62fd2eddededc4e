"""Every backend gives the known answers of ``tests/vectors`` for every operator.

Those of keys are in ``tests/derivation/test_vectors.py``, with the scalars of the derivation.
"""

import functools
import hashlib
import struct

import numpy as np
import pytest
import torch
from helpers import vectors
from helpers.operator_calls import CPU_PATHS, bits, mapped, moved, on_path, written
from helpers.operators import I64, U64
from helpers.vectors import fields_of

import fastseed
from fastseed._backend.ops import exact, perturb
from fastseed._backend.ops.sampling import LEAST_CODE
from fastseed._backend.reference import exact_sum as exact_reference
from fastseed._backend.reference import fp_math, scalar
from fastseed._backend.reference.scalar import signed
from fastseed.derivation import streams
from fastseed.nn.dropout import rows as scope_blocks
from fastseed.nn.dropout import scope as layer_scope

pytestmark = pytest.mark.cuda
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@pytest.fixture(params=[*CPU_PATHS, "device"])
def run(request, device):
    """Call an operator by its name on a path; return what it wrote or returned."""
    path = device if request.param == "device" else request.param

    def call(name, *arguments):
        given = moved(arguments, "cpu" if path in CPU_PATHS else path)
        result = on_path(name, path)(*given)
        found = written(name, given) if result is None else [result]
        return mapped(torch.Tensor.cpu, found)

    return call


def same(found, expected):
    return torch.equal(bits(found), bits(expected))


def numbers(patterns, dtype):
    """Numbers from the words of their bits, in hexadecimal digits."""
    words, width = [int(text, 16) for text in patterns], 8 * dtype.itemsize
    words = [word - (word >> width - 1 << width) if width > 8 else word for word in words]
    return torch.tensor(words, dtype=INTEGERS[dtype.itemsize]).view(dtype)


def real(text):
    return numbers([text], torch.float32 if len(text) == 8 else torch.float64).item()


def key(*words):
    return torch.tensor([[int(word, 16) for word in words]], dtype=U64)


def dtype_of(name):
    return getattr(torch, name)


FILES = {
    "draws": (1002, "d9be2ea07c46c0d65f9d9aae1dd4d02eb73c9a0995703f8749ecba12968bba3b"),
    "dropout": (688, "6dce993ed7826eee3731f3a81192cb076f70b87d80493641f7c4df0274d81f81"),
    "exact_sum": (692, "95e932e07a605c4fd95a72bd9c5f619e39c0ac53193ccd76e53ffda5fd524de6"),
    "perturb": (448, "40b06e4870a032cb7726c4fbc9bcdf89ed03a751f095e3aba9fda3f6f6106829"),
    "sampling": (472, "a31e83744cf4582d7120b752fab29362871bda49bed5450860055b386fd5d8a5"),
    "shuffle": (306, "9f59446deb98a2ee21cff19d999c09452b4d0e80020910a4724c25fa8afeb8d8"),
}
"""A release of each: how many rows, and the digest over them."""


@pytest.mark.parametrize("file", FILES)
def test_known_answers_are_frozen(file):
    texts, releases = list(vectors.data_lines(file)), vectors.frozen(file)
    assert FILES[file] in releases and releases[-1][0] == len(texts)
    assert vectors.changed(texts, releases) == []
    assert len(set(texts)) == len(texts) or file == "exact_sum"


# ---------------------------------------------------------------- draws

PARAMETERS = {
    "bits": 0, "uniform": 3, "normal": 2, "exponential": 1, "bernoulli": 1, "randint": 2,
    "trunc_normal": 8,
}  # fmt: skip


def check_draw(run, name, kind, lo, hi, position, first, count, *rest):
    """Whole, as one of several streams, and in windows whose ends have all remainders."""
    split, is_real = PARAMETERS[name], name not in ("bernoulli", "randint")
    given = [real(text) if is_real else signed(int(text)) for text in rest[:split]]
    values, text = numbers(rest[split:], dtype_of(kind)), (name, kind, lo, hi, position)
    n, width = len(values), max(1, len(values) - 4)
    assert n == int(count)

    def draw(streams, length, *layout):
        words = [f"{int(lo, 16) ^ i:x}" for i in range(streams - 1, -1, -1)]
        at = torch.tensor([4, 4, int(position)][-streams:])
        out = torch.zeros(streams, length, dtype=values.dtype)
        keys = torch.cat([key(word, hi) for word in words])
        return run(f"draw_{name}", out, keys, at, *layout, int(first), *given)[0]

    assert same(draw(1, n, [], [])[0], values), text
    several = draw(3, n, [n], [1])
    assert same(several[2], values), text
    if n > 100 and name != "bernoulli" and len(set(rest[split:])) > 1:
        assert not same(several[0], several[1]) and not same(several[1], several[2]), text
    windows = torch.cat([values[i : i + width] for i in range(n - width + 1)])
    assert same(draw(1, len(windows), [n - width + 1, width], [1, 1])[0], windows), text


def test_draws(run):
    for row in fields_of("draws", "draw"):
        check_draw(run, *row)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("function", ["negative_log", "cos", "sin"])
def test_functions_of_words(function, kind):
    rows = [row[2:] for row in fields_of("draws", "real") if row[:2] == [function, kind]]
    unsigned = np.uint32 if kind == "float32" else np.uint64
    words, expected = (np.array([int(t, 16) for t in c], unsigned) for c in zip(*rows, strict=True))
    if function == "negative_log":
        made = fp_math.standard_exponential(words)
    else:
        made = fp_math.cos_sin(words)[function == "sin"]
    assert made.dtype == kind and np.array_equal(made.view(unsigned), expected)


@pytest.mark.costly("NumPy computes each order")
def test_orders(run):
    for line in vectors.data_lines("shuffle"):
        kind, master, task, epoch, name, *rest = line.split(" ")
        (n, start, stride, count), answers = map(int, rest[:4]), rest[4:]
        scope = scalar.scope_key(int(master), int(task), int(epoch), 0)
        words = scalar.name_key(scope, scalar.name_words(name))
        order = scalar.stream_key(words, 0, 0, n, scalar.DOMAIN_SHUFFLE)
        where = signed(order & 2**64 - 1), signed(order >> 64), n
        at, out = torch.arange(start, start + count * stride, stride), torch.zeros(count, dtype=I64)
        if kind == "inverse":
            (found,) = run("shuffle_positions", out, at, *where)
        else:
            (found,) = run("shuffle", out, *where, start, stride)
            assert torch.equal(run("shuffle_positions", out, found, *where)[0], at), line
            for k in range(0, count, 40):
                (one,) = run("shuffle", out[:1], *where, start + k * stride, 1)
                assert one[0] == found[k], line
        if kind == "digest":
            assert [hashlib.sha256(found.numpy().astype("<i8").tobytes()).hexdigest()] == answers
        else:
            assert list(map(str, found.tolist())) == answers, line


# ---------------------------------------------------------------- tokens


def winner(run, logits, words, position, heat, least, first):
    """Token and score, as a row has them."""
    at = torch.tensor([int(position)]), torch.tensor([heat], dtype=torch.float64)
    out = torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=I64)
    score, token = run(
        "sampling_race", *out, logits, key(*words), *at, torch.tensor([least]), int(first)
    )
    return [str(token.item()), struct.pack(">d", score.item()).hex()]


def test_races(run):
    for lo, hi, position, token, _, noise in fields_of("sampling", "noise"):
        """Noise is the score of a logit of zero."""
        found = winner(run, torch.zeros(1, 1), (lo, hi), position, 1.0, LEAST_CODE, token)
        assert found == [token, noise]
    for lo, hi, position, heat, least, first, n, *rest in fields_of("sampling", "race"):
        assert len(rest) == int(n) + 2
        logits = numbers(rest[:-2], torch.float32)[None]
        found = winner(run, logits, (lo, hi), position, real(heat), int(least), first)
        assert found == rest[-2:]


def test_masses(run):
    """The mass of a logit is the share at which a token of no mass but one is reached."""
    zero = torch.zeros(1, dtype=I64)
    for logit, greatest, heat, mass in fields_of("sampling", "mass"):
        at = torch.tensor([real(heat)], dtype=torch.float64)
        logits, most = (numbers([text], torch.float32) for text in (logit, greatest))
        half = torch.tensor([0.5], dtype=torch.float64)
        (found,) = run("sampling_threshold", zero, logits[None], zero, half, most, at, 0)
        assert (found.item() != 0) == (int(mass) > 0)


# ---------------------------------------------------------------- sums and perturbations


def test_exact_sums(run):
    for dtype, patterns, others, digits, exponent, *kinds in fields_of("exact_sum", "sum"):
        values = numbers(patterns.split(",") if patterns != "-" else [], dtype_of(dtype))
        factors = {"-": [], "=": [values]}.get(others)
        if factors is None:
            factors = [numbers(others.split(","), dtype_of(dtype))]
        (total,) = run("exact_sum", torch.zeros(exact.SIZE, dtype=I64), [values], factors)
        at = int(exponent) + exact_reference.FRACTION_BITS
        assert exact_reference.to_integer(total.numpy()) == int(digits, 16) << at, patterns
        assert total[exact_reference.LIMBS :].tolist() == [*map(int, kinds), values.numel()]
        # carried, so that the same number has the same limbs
        limbs = total[: exact_reference.LIMBS - 1]
        assert limbs.min() >= 0 and limbs.max() < 2**32


def test_perturbations(run):
    for line in vectors.data_lines("perturb"):
        kind, name, noise, first, entries, *rest = line.split(" ")
        entries = [entry.split(":") for entry in entries.split(",")]
        if kind == "undo":
            entries = [[*entries[0], rest.pop(0), rest.pop(0)]]
        before, after = (numbers(text.split(","), dtype_of(name)) for text in rest[:2])
        keys = torch.cat([key(lo, hi) for lo, hi, _ in entries])
        scales = numbers([scale for *_, scale in entries], torch.float64)
        where = keys, scales, [int(first), 0], noise == "rademacher"
        if kind == "add":
            (moved_,) = run("perturb", [before], [], [], *where, perturb.ADD)
        else:
            steps = torch.zeros(len(before), dtype=torch.int8)
            places = torch.zeros(len(before) + 1, 2, dtype=I64)
            moved_, steps, places = run(
                "perturb", [before], [steps], [places], *where, perturb.RECORD
            )
            assert steps.tolist() == list(map(int, rest[2].split(",")))
            undone, _ = run("perturb", [moved_], [steps], [], *where, perturb.UNDO)
            listed = steps == perturb.LISTED
            undone = torch.where(listed, before, undone)
            assert same(undone, before)
            assert int(listed.sum()) == int(places[0, 0])
        assert same(moved_, after), line


def test_numbers_stay_where_the_list_is_full(run):
    before = torch.randn(5001) * 0.02
    places, steps = torch.zeros(80, 2, dtype=I64), torch.zeros(5001, dtype=torch.int8)
    far = torch.tensor([1e3], dtype=torch.float64)  # than a byte nearly everywhere
    found, steps, places = run(
        "perturb", [before], [steps], [places], key("1", "2"), far, [0, 0], False, perturb.RECORD
    )
    count, stays = int(places[0, 0]), steps == perturb.UNMOVED
    assert count > 79 and int(stays.sum()) == count - 79
    assert torch.equal(found[stays], before[stays])
    assert int((steps == perturb.LISTED).sum()) == 79


# ---------------------------------------------------------------- dropout

REALS = ("float16", "bfloat16", "float32", "float64")


def kept(run, count, words, at, threshold):
    """Which of ``count`` elements stay."""
    (found,) = run("dropout", torch.ones(count), key(*words), [], [], at, int(threshold))
    return "".join(str(int(bit)) for bit in found != 0)


def test_masks(run):
    for lo, hi, first, threshold, count, expected in fields_of("dropout", "mask"):
        assert kept(run, int(count), (lo, hi), int(first), threshold) == expected, (lo, hi, first)
        # the first index as a word of the key, and elements apart from each other
        words = lo, hi, f"{int(first):x}"
        found = [kept(run, 1, words, i, threshold) for i in range(int(count))]
        assert "".join(found) == expected, (lo, hi, first)


def test_values(run):
    for name, threshold, element, expected in fields_of("dropout", "value"):
        given, answer = numbers([element] * 64, dtype_of(name)), numbers([expected], dtype_of(name))
        words, at = ("1", "2"), ([], [], 0, int(threshold))
        (found,) = run("dropout", given, key(*words), *at)
        stays = [bit == "1" for bit in kept(run, 64, words, 0, threshold)]
        assert any(stays) or int(threshold) > 60000
        right = [answer if stay else torch.zeros_like(answer) for stay in stays]
        assert same(found, torch.cat(right)), element


def test_keys_of_layers(run):
    out = torch.zeros(3, dtype=U64)
    for *at, name, label, row, elements, lo, hi, first in fields_of("dropout", "layer"):
        master, task, epoch, step = map(int, at)
        scope = torch.tensor(scalar.scope_key(master, task, epoch, step), dtype=U64)
        words = layer_scope.LayerName(name).words
        index = 0 if label == "-" else scope_blocks.label(label).value
        rest = torch.tensor([int(row)]), *words, index, 0, int(elements), fastseed.SHARED
        (found,) = run("layer_key", out, scope, *rest)
        assert found.tolist() == [int(word, 16) for word in (lo, hi, first)], (name, label, row)
        fastseed.init(master, rank=0, world_size=1)
        where = {"task": task, "epoch": epoch, "step": step, "rank": fastseed.SHARED}
        own = fastseed.derive_key(f"dropout/{name}", **where, index=index)
        assert own == int(lo, 16) | int(hi, 16) << 64


def test_keys_of_draws_of_blocks(run):
    out = torch.zeros(3, dtype=U64)
    for *at, name, index, step, rank, count, lo, hi in fields_of("dropout", "block"):
        scope = torch.tensor(scalar.scope_key(*map(int, at)), dtype=U64)
        words = map(signed, streams.name_words(f"keyed/{name}"))
        rest = torch.tensor([int(count)]), *words, signed(int(index)), int(step), 0, int(rank)
        (found,) = run("layer_key", out, scope, *rest)
        assert found.tolist() == [int(lo, 16), int(hi, 16), 0], (name, index, count)


@pytest.mark.parametrize("dtype", REALS)
def test_index_after_the_last_is_0(run, dtype):
    drop = functools.partial(run, "dropout")
    x, last = torch.randn(6000).to(dtype_of(dtype)), 2**64 - 1
    for before in (0, 6, 7, 8, 4095, 4096, 5000):
        (found,) = drop(x, key("3", "4", f"{last - before:x}"), [], [], 0, 30000)
        for i in range(max(0, before - 2), before + 4):
            words = key("3", "4", f"{(last - before + i) % 2**64:x}")
            assert torch.equal(drop(x[i : i + 1], words, [], [], 0, 30000)[0], found[i : i + 1])
        (after,) = drop(x[before + 1 :], key("3", "4"), [], [], 0, 30000)
        assert torch.equal(found[before + 1 :], after)


@pytest.mark.parametrize("dtype", REALS)
def test_elements_along_a_stride_of_0_have_one_number(run, dtype):
    drop, keys = functools.partial(run, "dropout"), key("5", "6", f"{2**64 - 7:x}")
    for rows, channels, each in ((2, 9, 7), (3, 8, 1), (1, 3, 9000), (2, 5000, 2)):
        x = torch.randn(rows, channels, each).to(dtype_of(dtype))
        stays = drop(torch.ones(rows, channels, 1), keys, [], [], 2, 30000)[0] != 0
        (found,) = drop(x, keys, [rows * channels, each], [1, 0], 2, 30000)
        last = x.transpose(1, 2).contiguous()
        (turned,) = drop(last, keys, [rows, each, channels], [channels, 0, 1], 2, 30000)
        assert torch.equal(found, turned.transpose(1, 2))
        wide = torch.float64 if dtype == "float64" else torch.float32
        scaled = (x.to(wide) * (2**16 / (2**16 - 30000))).to(x.dtype)
        assert torch.equal(found, torch.where(stays, scaled, 0))
        assert not found[~stays.expand_as(x)].signbit().any()
