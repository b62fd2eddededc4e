"""TRL's GRPOTrainer with a tiny GPT-2: completions by identity, and runs that resume exactly."""

import os
from itertools import chain

import pytest
import torch
from helpers.processes import run_ranks

import fastseed

trl = pytest.importorskip("trl", reason="trl is not installed (extra: trl)")
from helpers.tiny_grpo import NAMES, PROMPTS, dataset, train  # noqa: E402

from fastseed.integrations.trl import SeededGRPOTrainer, _sampling_by  # noqa: E402

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_steps": 8}, id="two epochs"),
        pytest.param({"steps_per_generation": 2, "num_iterations": 2}, id="rollouts wait"),
        pytest.param({"gradient_accumulation_steps": 4, "steps_per_generation": 1}, id="four"),
    ],
)  # fmt: skip
def test_a_resumed_run_is_the_same_run(tmp_path, options):
    whole = train(tmp_path, save_strategy="steps", save_steps=1, **options)
    for step in (1, 3, 7)[: 2 + (options.get("max_steps") == 8)]:
        rest = train(tmp_path / "rest", tmp_path / f"checkpoint-{step}", **options)
        assert rest.digest == whole.digest, step
        assert rest.texts == whole.texts[len(whole.texts) - len(rest.texts) :]
        assert "num_iterations" in options or {at for at, *_ in rest.texts} == {
            at for at, *_ in whole.texts if at >= step
        }


def test_without_the_integration_a_resumed_run_is_another_run(tmp_path):
    """The negative control: TRL makes other rollouts from the weights where it resumes."""
    options = {"kind": trl.GRPOTrainer, "steps_per_generation": 2, "num_iterations": 2}
    whole = train(tmp_path, save_strategy="steps", save_steps=1, **options)
    rest = train(tmp_path / "rest", tmp_path / "checkpoint-1", **options)
    assert rest.digest != whole.digest


def completions_of(rank):
    return sorted(tuple(row) for row in rank)


def test_completions_do_not_depend_on_the_split(tmp_path):
    """The weights do not change: completions of a step are those of a prompt and a sample.

    Plain TRL, the negative control, makes others on two ranks, in batches of two.
    """
    whole = train(tmp_path, learning_rate=0.0).texts
    assert len(whole) == 16 and len(set(whole)) > 12
    halves = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    assert train(tmp_path, learning_rate=0.0, **halves).texts == whole
    ranks = run_ranks("grpo_rank.py", 2, tmp_path)
    assert all(len(rank["seeded"]) == 8 for rank in ranks)
    assert all(rank["resumed"] == rank["whole"] for rank in ranks)  # with rollouts that wait
    assert completions_of(chain(*(rank["seeded"] for rank in ranks))) == whole
    plain = train(tmp_path, learning_rate=0.0, kind=trl.GRPOTrainer).texts
    both = completions_of(chain(*(rank["plain"] for rank in ranks)))
    assert [row[:2] for row in both] == [row[:2] for row in plain] and both != plain


def test_equal_texts_are_two_prompts(tmp_path):
    rows = train(tmp_path, max_steps=1, per_device_train_batch_size=24).texts
    groups = {name: [text for _, at, text in rows if at == name] for name in NAMES}
    assert PROMPTS[0] == PROMPTS[1] and groups["a"] != groups["b"]
    assert all(len(group) == 4 for group in groups.values())


def test_seeds_are_those_of_rollouts(tmp_path):
    """A function that generates by itself finds them, in training and in two evaluations."""
    noted = {}

    def generate(prompts, trainer):
        step, training = trainer.state.global_step, trainer.model.training
        noted.setdefault((step, training), []).extend(trainer.rollout_seeds)
        ids = [trainer.processing_class(text=prompt)["input_ids"] for prompt in prompts]
        logprobs = [[-1.0, -1.0] for _ in prompts]
        return {"prompt_ids": ids, "completion_ids": [[4, 1]] * len(ids), "logprobs": logprobs}

    two = {"one": dataset(), "two": dataset()}
    more = {"eval_dataset": two, "eval_strategy": "steps", "eval_steps": 2, "max_steps": 2}
    sizes = {"per_device_eval_batch_size": 4, "per_device_train_batch_size": 24}
    train(tmp_path, rollout_func=generate, **more, **sizes)
    every = [(prompt, sample) for prompt in range(6) for sample in range(4)]
    for step in (0, 1):
        expected = [fastseed.rollouts.seed(step, *at, task=1) for at in every]
        assert sorted(noted[step, True]) == sorted(expected)
    expected = [
        fastseed.rollouts.seed(2, f"{name}/{prompt}", sample, task=2)
        for name in two
        for prompt, sample in every
    ]
    assert sorted(noted[2, False]) == sorted(expected)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"callbacks": []}, "callbacks must be with one"),
        ({"remove_unused_columns": True}, "remove_unused_columns of the arguments must be False"),
        ({"generation_kwargs": {"typical_p": 0.9}}, r"generation_kwargs .* got 'typical_p'"),
        ({"train_dataset": dataset().to_iterable_dataset()}, "must be a dataset with a length"),
        ({"use_transformers_continuous_batching": True}, "must be off: TRL gives"),
    ],
)
def test_what_would_not_be_seeded_is_refused(tmp_path, options, says):
    with pytest.raises((TypeError, ValueError), match=says):
        train(tmp_path, **options)


def test_a_trl_that_generates_otherwise_is_an_error(tmp_path):
    class Other(SeededGRPOTrainer):
        def _generate_single_turn(self, prompt_ids, *others):
            return [[4, 1] for _ in prompt_ids], None

    with pytest.raises(RuntimeError, match="TRL called generate 0 times for a batch"):
        train(tmp_path, kind=Other)


def test_checkpoints_of_others(tmp_path, caplog):
    """Rollouts that wait belong to their ranks and sizes; a checkpoint of TRL has none."""
    options = {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 2}
    train(tmp_path, save_strategy="steps", save_steps=1, **options)
    options["steps_per_generation"] = 4
    with pytest.raises(ValueError, match=r"checkpoint must be of as many ranks .* got '\(1, 2\)"):
        train(tmp_path / "rest", tmp_path / "checkpoint-1", **options)
    os.remove(tmp_path / "checkpoint-1" / "fastseed-grpo-00000.pt")
    train(tmp_path / "rest", tmp_path / "checkpoint-1", **options)
    assert "TRL generates again there" in caplog.text


def test_a_patched_generate_is_put_back():
    model = torch.nn.Linear(1, 1)
    model.generate = patched = lambda **options: options
    with _sampling_by(None, model):
        assert model.generate()["do_sample"] is False
    assert model.generate is patched
