"""Text of a tiny GPT-2 with random weights: the same in every batch, slot and padding."""

import doctest

import pytest
import torch

import fastseed

transformers = pytest.importorskip("transformers")
from fastseed.integrations.transformers import SeededTokens  # noqa: E402

VOCABULARY, LENGTH, NEW = 101, 5, 16
SEEDS = [3, 2**40, 7, 7, 2**63 - 1, 11, 12, 13]


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            n_layer=2, n_embd=32, n_head=2, vocab_size=VOCABULARY, n_positions=64
        )
        return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def prompts():
    made = torch.randint(0, VOCABULARY - 1, (8, LENGTH), generator=torch.Generator().manual_seed(1))
    made[3] = made[2]  # one prompt with one seed, twice
    return made


def generate(model, prompts, seeds, mask=None, position=0, **more):
    tokens = SeededTokens(seeds, position=position, temperature=0.9, top_p=0.95)
    found = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts) if mask is None else mask,
        logits_processor=[tokens],
        **{"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0, "eos_token_id": None}
        | more,
    )
    return found[:, prompts.size(1) :]


def test_text_is_the_same_in_every_batch(model, prompts):
    whole = generate(model, prompts, SEEDS)
    assert whole.shape == (8, NEW)
    for size in (1, 3):
        for at in range(0, 8, size):
            part = generate(model, prompts[at : at + size], SEEDS[at : at + size])
            assert torch.equal(part, whole[at : at + size])
    order = [5, 2, 7, 0, 3, 6, 1, 4]
    shuffled = generate(model, prompts[order], [SEEDS[i] for i in order])
    assert torch.equal(shuffled, whole[order])
    assert len({tuple(row) for row in whole.tolist()}) == 7  # rows 2 and 3 are one request


def test_padding_does_not_matter(model, prompts):
    whole = generate(model, prompts, SEEDS)
    padded = torch.nn.functional.pad(prompts, (4, 0))
    mask = torch.nn.functional.pad(torch.ones_like(prompts), (4, 0))
    assert torch.equal(generate(model, padded, SEEDS, mask), whole)


def test_rollout_seeds_of_return_sequences(model, prompts):
    flat = fastseed.rollouts.seeds(3, range(2), 4, master_seed=42).reshape(-1).tolist()
    group = generate(model, prompts[:2], flat, num_return_sequences=4, do_sample=True)
    for row, seed in enumerate(flat):
        alone = generate(model, prompts[row // 4 : row // 4 + 1], [seed])
        assert torch.equal(group[row : row + 1], alone)
    assert len({tuple(row) for row in group.tolist()}) == 8


def test_a_request_in_two_calls_is_that_of_one(model, prompts):
    whole = generate(model, prompts, SEEDS)
    first = generate(model, prompts, SEEDS, max_new_tokens=10)
    longer = torch.cat([prompts, first], 1)
    rest = generate(model, longer, SEEDS, position=10, max_new_tokens=NEW - 10)
    assert torch.equal(torch.cat([first, rest], 1), whole)


def test_one_token_is_left_also_for_multinomial(model, prompts):
    whole = generate(model, prompts, SEEDS)
    assert torch.equal(generate(model, prompts, SEEDS, do_sample=True), whole)
    found = SeededTokens([1, 2], temperature=0)(prompts[:2], torch.tensor([[1.0, 5, 3], [9, 5, 3]]))
    assert found.tolist() == [[-torch.inf, 0, -torch.inf], [0, -torch.inf, -torch.inf]]


def test_example_of_the_docstring_runs():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for example in finder.find(SeededTokens, globs={"fastseed": fastseed}):
        runner.run(example)
    assert runner.summarize(verbose=False).attempted == 9 and not runner.failures


def test_refused_arguments(model, prompts):
    with pytest.raises(ValueError, match=r"^fastseed\.integrations\.transformers\.\w+: position"):
        SeededTokens([1], position=-1)
    with pytest.raises(ValueError, match="keys must"):
        generate(model, prompts, SEEDS[:3])
