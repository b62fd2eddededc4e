"""The Trainer callback against the real package: stopped and resumed runs, evaluation, tasks."""

import logging
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.loaders import Continuing, digest
from helpers.processes import run_ranks
from torch.utils.data import Dataset

import fastseed
from fastseed.data import Loader, per_sample
from fastseed.tools import checkpoints

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")
from fastseed.integrations.transformers import FastseedCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
N, BATCH, EPOCHS = 12, 3, 3
STEPS = N // BATCH


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()


class Points(Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        point = torch.rand(3) + np.random.rand() + random.random()
        return {"index": torch.tensor(int(i)), "point": point.float()}


class Model(torch.nn.Module):
    """Dropout; what each step saw and drew is written down."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.trained, self.evaluated = [], []

    def forward(self, index, point):
        seen = self.trained if self.training else self.evaluated
        seen.append((index.tolist(), point.sum().item(), float(torch.rand(()))))
        kept = torch.nn.functional.dropout(point, 0.5)
        return {"loss": (self.layer(kept) ** 2).mean()}


class TrainerWithLoader(transformers.Trainer):
    """A Trainer that reads fastseed's loader, with workers only after resuming."""

    def get_train_dataloader(self):
        workers = 1 if self.args.run_name == "resumed" else 0
        options = {"collate_fn": self.data_collator, "num_workers": workers}
        return Loader(self.train_dataset, BATCH, shuffle=True, **options)


def train(folder, *, resume=None, callback=None, evaluated=None, data=None, kind=None, **options):
    fastseed.init(42)
    fastseed.reseed(0)
    model = Model()
    options = {"eval_strategy": "no", "save_strategy": "no", "max_grad_norm": 0.0, **options}
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=6,
        learning_rate=0.1,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        remove_unused_columns=False,
        label_names=["index"],
        **options,
    )
    trainer = (kind or transformers.Trainer)(
        model=model,
        args=arguments,
        train_dataset=per_sample(Points()) if data is None else data,
        eval_dataset=evaluated if evaluated is not None else per_sample(Points()),
        callbacks=[callback or FastseedCallback()],
    )
    trainer.train(resume_from_checkpoint=resume)
    return model


@pytest.mark.integrations
def test_a_run_repeats_and_evaluation_leaves_it_alone(tmp_path):
    once = train(tmp_path)
    assert len(once.trained) == STEPS * EPOCHS
    two = {"one": per_sample(Points()), "two": per_sample(Points())}
    for options in (
        {},
        {"eval_strategy": "epoch"},
        {"eval_strategy": "steps", "eval_steps": 3},
        {"eval_strategy": "steps", "eval_steps": 2, "evaluated": two},
        {"eval_strategy": "epoch", "eval_on_start": True},
        {"seed": 7},
        {"save_strategy": "epoch"},
    ):
        other = train(tmp_path, **options)
        assert other.trained == once.trained and digest(other) == digest(once), options
        assert bool(other.evaluated) == ("eval_strategy" in options)
    draws = [entry[-1] for entry in train(tmp_path, eval_strategy="epoch").evaluated]
    assert len(draws) == 2 * EPOCHS
    assert len({*draws, *(entry[-1] for entry in once.trained)}) == len(draws) + len(once.trained)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"save_strategy": "steps", "save_steps": 1}, id="steps"),
        *(
            pytest.param(options, id=name, marks=pytest.mark.integrations)
            for name, options in {
                "epochs": {"save_strategy": "epoch"},
                "epochs evaluated": {"save_strategy": "epoch", "eval_strategy": "epoch"},
                "steps evaluated": {
                    "save_strategy": "steps", "save_steps": 2,
                    "eval_strategy": "steps", "eval_steps": 1,
                },
                "accumulated": {
                    "save_strategy": "steps", "save_steps": 1, "gradient_accumulation_steps": 2,
                },
            }.items()
        ),
    ],
)  # fmt: skip
def test_a_resumed_run_is_the_same_run(tmp_path, options):
    whole = train(tmp_path, **options)
    checkpoints = sorted(tmp_path.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    assert len(checkpoints) in (3, 6, 12)
    rest = {k: v for k, v in options.items() if not k.startswith("save")}
    each = options.get("gradient_accumulation_steps", 1)
    for path in checkpoints[:: max(1, len(checkpoints) // 4)]:  # 1, 4, 7, 10 of 12 steps
        step = each * int(path.name.split("-")[1])
        model = train(tmp_path / "rest", resume=str(path), **rest)
        assert model.trained == whole.trained[step:], path.name
        assert digest(model) == digest(whole), path.name


def hugging_face_points():
    def augment(batch):
        points = [torch.full((3,), float(i)) + torch.rand(3) for i in batch["index"]]
        return {"index": torch.tensor(batch["index"]), "point": points}

    return per_sample(datasets.Dataset.from_dict({"index": list(range(N))}).with_transform(augment))


def test_a_loader_of_fastseed_resumes_within_an_epoch(tmp_path):
    options = {"kind": TrainerWithLoader, "data": hugging_face_points()}
    whole = train(tmp_path, save_strategy="steps", save_steps=2, **options)
    orders = [
        [i for batch, _, _ in whole.trained[k : k + STEPS] for i in batch] for k in (0, STEPS)
    ]
    assert orders[0] != orders[1] and all(sorted(order) == list(range(N)) for order in orders)
    for step in (2, 4, 6):
        path = tmp_path / f"checkpoint-{step}"
        model = train(tmp_path / "rest", resume=str(path), run_name="resumed", **options)
        assert model.trained == whole.trained[step:], step
        assert digest(model) == digest(whole), step


class TrainerWithSampler(transformers.Trainer):
    def _get_train_sampler(self, train_dataset=None):
        return Continuing(N)


def test_a_sampler_with_its_own_generator_resumes(tmp_path):
    whole = train(tmp_path, kind=TrainerWithSampler, save_strategy="steps", save_steps=6)
    path = str(tmp_path / "checkpoint-6")
    model = train(tmp_path / "rest", kind=TrainerWithSampler, resume=path)
    assert model.trained == whole.trained[6:] and digest(model) == digest(whole)
    other = train(tmp_path, kind=TrainerWithSampler, callback=Seeded43())
    orders = [[i for batch, _, _ in m.trained[:STEPS] for i in batch] for m in (whole, other)]
    assert orders[0] != orders[1] and all(sorted(order) == list(range(N)) for order in orders)


class Seeded43(FastseedCallback):
    def on_train_begin(self, *arguments, **keywords):
        fastseed.init(43)
        super().on_train_begin(*arguments, **keywords)


def test_workers_are_told_the_epoch(tmp_path):
    alone = train(tmp_path)
    shared = train(tmp_path, dataloader_num_workers=2)
    assert shared.trained == alone.trained and digest(shared) == digest(alone)


def test_registered_generators_are_part_of_it(tmp_path, caplog):
    own = np.random.default_rng()

    class Drawing(FastseedCallback):
        def on_train_begin(self, *arguments, **keywords):
            super().on_train_begin(*arguments, **keywords)
            if not list(fastseed.derivation.context.seeder.generators.registry):
                fastseed.register_generator(own, name="own")

        def on_step_begin(self, *arguments, **keywords):
            super().on_step_begin(*arguments, **keywords)
            drawn.append(own.random())

    drawn = []
    train(tmp_path, callback=Drawing(), save_strategy="steps", save_steps=6)
    whole, drawn = drawn, []
    path = tmp_path / "checkpoint-6"
    train(tmp_path, resume=str(path), callback=Drawing())
    assert len(set(whole)) == STEPS * EPOCHS and drawn == whole[6:]


def test_the_order_and_the_epochs_follow_the_master_seed(tmp_path):
    found = train(tmp_path)
    other = train(tmp_path, callback=Seeded43())
    orders = [[i for batch, _, _ in m.trained for i in batch] for m in (found, other)]
    epochs = [order[k * N : k * N + N] for order in orders for k in range(EPOCHS)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 2 * EPOCHS


def test_tasks(tmp_path):
    places = []

    class Looking(FastseedCallback):
        def on_step_begin(self, *arguments, **keywords):
            super().on_step_begin(*arguments, **keywords)
            places.append(tuple(fastseed.derivation.context.seeder.scope))

        def on_prediction_step(self, *arguments, **keywords):
            super().on_prediction_step(*arguments, **keywords)
            evaluations.append(tuple(fastseed.derivation.context.seeder.scope))

    evaluations = []
    train(tmp_path, callback=Looking(), eval_strategy="steps", eval_steps=2)
    assert places == [(1, step // STEPS, 0) for step in range(STEPS * EPOCHS)]
    assert evaluations == [(2, epoch, 0) for epoch in range(EPOCHS) for _ in range(4)]


def test_another_master_seed_than_that_of_init_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"master_seed must be that of .*, 42, or None, got 7"):
        train(tmp_path, callback=FastseedCallback(7))


def test_a_missing_file_is_said(tmp_path, caplog):
    class Registering(FastseedCallback):
        def on_train_begin(self, args, state, control, **keywords):
            fastseed.register_generator(np.random.default_rng(), name="own")
            super().on_train_begin(args, state, control, **keywords)

    train(tmp_path, save_strategy="steps", save_steps=6)
    path = tmp_path / "checkpoint-6"
    (path / "fastseed-00000.state").unlink()
    caplog.set_level(logging.WARNING, "fastseed")
    train(tmp_path, resume=str(path), callback=Registering())
    assert "there is no fastseed-00000.state" in caplog.text


@pytest.mark.integrations
@pytest.mark.parametrize("kind", ["sampler", "loader", "grouped"])
def test_two_ranks_divide_orders_that_are_not_the_trainer_s(tmp_path, kind):
    whole, rest = zip(*run_ranks("trainer_ranks.py", 2, tmp_path, kind), strict=True)
    for epoch in (slice(0, 6), slice(6, 12)):
        assert sorted(whole[0]["seen"][epoch] + whole[1]["seen"][epoch]) == list(range(12))
    for found, expected in zip(rest, whole, strict=True):
        assert found["digest"] == expected["digest"] and found["seen"] == expected["seen"][-3:]


@pytest.mark.integrations
def test_two_ranks_name_a_sampler_without_a_generator(tmp_path):
    for rank in run_ranks("trainer_ranks.py", 2, tmp_path, "global"):
        assert "if Global draws its order at random" in rank[0]["log"]


@pytest.mark.integrations
def test_two_ranks(tmp_path: Path):
    whole, rest = zip(*run_ranks("trainer_ranks.py", 2, tmp_path), strict=True)
    seen = [rank["seen"] for rank in whole]
    assert sorted(seen[0][:6] + seen[1][:6]) == list(range(12))  # one order, dealt out
    assert set(whole[0]["draws"]).isdisjoint(whole[1]["draws"])
    for found, expected in zip(rest, whole, strict=True):
        assert found["digest"] == expected["digest"]
        assert found["draws"] == expected["draws"][3:] and len(found["draws"]) == 1
    held = checkpoints.inspect(tmp_path / "checkpoint-3")
    assert held and {("rank 1", "numpy"), ("rank 0", "torch.cpu")} < {o[:2] for o in held.states}
    before = checkpoints.inspect(tmp_path / "checkpoint-2")
    assert all(found.text for found in checkpoints.compare_states(before, held))
