"""Examples as their users run them: digests on any number of ranks, what is drawn, what learns."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
from helpers.paths import EXAMPLES, ROOT
from helpers.processes import Script, free_port, run_job
from helpers.support import clean_environment, run_python


def run(script: str, *arguments: object, ranks: int = 1, succeeds: bool = True) -> str:
    """Return what a fresh interpreter prints that runs an example, under torchrun if on ranks."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks)
    command = (*(launcher if ranks > 1 else ()), EXAMPLES / script, *arguments)
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=280,
        env=clean_environment(OMP_NUM_THREADS="1"),
    )  # fmt: skip
    assert done.returncode == 0 or not succeeds, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_packing_loses_no_token():
    assert run_python(EXAMPLES / "pack_sequences.py").count("sequences") == 5


def test_requests_do_not_depend_on_their_batch():
    found = run("seed_per_request.py", "--requests", 11, "--device", "cpu")
    assert "11 requests, batches of 1, 3 and 8, two orders: the same pictures." in found


def test_a_model_is_initialized_to_one_digest_on_every_mesh():
    """Exit statuses are no criterion: threads of gloo abort a process that ends now and then."""

    def digest(ranks, *arguments):
        printed = run("init_on_mesh.py", *arguments, ranks=ranks, succeeds=False)
        (found,) = re.findall(rf"^{ranks} ranks as \(.*\): ([0-9a-f]{{64}})$", printed, re.M)
        return found

    alone = digest(1)
    assert digest(2) == alone
    assert digest(1, "--seed", "1") != alone


def rewards(tmp_path, *arguments):
    run("train_grpo_rollouts.py", "--out", tmp_path, *arguments)
    found = json.loads((tmp_path / "rewards.json").read_text())
    return found["rollouts.seeds"], found["chunk-local"]


def test_two_steps_of_rollouts(tmp_path):
    (_, first, last), (_, start, end) = rewards(tmp_path, "--steps", 2)
    assert first != last
    assert start == end == first


def test_rollouts_learn(tmp_path):
    (learns, _, _), (stalled, start, end) = rewards(tmp_path)
    assert max(learns[:5]) < 0.2 and min(learns[-5:]) > 0.85
    assert start == end and max(stalled) < 0.25


def compare(tmp_path, *arguments):
    found = run("compare_same_weights.py", "--out", tmp_path, *arguments)
    assert found.endswith("VERDICT: the same weights, to the bit\n")
    return found


def test_layouts_have_one_digest_and_ddp_another(tmp_path):
    layouts = ("replicated:1", "replicated:3", "fsdp2:2", "hsdp:4", "ddp:2")
    found = compare(tmp_path, "--steps", "4", "--autocast", "--layout", *layouts)
    rows = re.findall(r"^ *(\w+ on \d): (\w+)  (\w+)  (\w+)$", found, re.MULTILINE)
    assert [name for name, *_ in rows] == [layout.replace(":", " on ") for layout in layouts]
    (_, *first), *others, (_, *ddp) = rows
    assert all(other == first for _, *other in others)
    assert ddp[0] != first[0] and ddp[1] != first[1]


def test_a_job_that_is_killed_ends_as_one_that_is_not(tmp_path):
    found = compare(tmp_path, "--steps", "16", "--kills", "3")
    assert found.count("killed\n") == 3


def weights(example, ranks, *arguments):
    """Return the digest that rank 0 prints."""
    rank_0, *_ = run_job(EXAMPLES / example, ranks, *arguments, timeout=400)
    return rank_0.stdout.split("weights ")[1].strip()


@pytest.mark.parametrize(
    ("steps", "layouts"),
    [
        (6, ["2 fsdp2"]),
        pytest.param(
            300, ["2 replicated", "4 replicated", "2 fsdp2", "4 fsdp2"], marks=pytest.mark.proof
        ),
    ],
)
def test_mezo_ends_in_one_digest_on_every_layout_and_its_log_too(tmp_path, steps, layouts):
    log = tmp_path / "mezo.json"
    expected = weights("train_mezo.py", 1, "--steps", steps, "--log", log)
    assert weights("train_mezo.py", 1, "--replay", log) == expected
    for ranks, layout in map(str.split, layouts):
        options = ("--layout", layout, "--steps", steps)
        assert weights("train_mezo.py", int(ranks), *options) == expected, (ranks, layout)
    assert weights("train_mezo.py", 2, "--layout", "tp", "--replay", log) == expected
    # Losses of a cut product may differ in their last bits: the log of such a run is its own.
    live = weights("train_mezo.py", 2, "--layout", "tp", "--steps", steps, "--log", log)
    assert weights("train_mezo.py", 1, "--replay", log) == live


def test_an_evolution_strategy_exchanges_scores_alone():
    found = {weights("train_evolution.py", ranks, "--generations", 10) for ranks in (1, 4)}
    assert len(found) == 1


def test_the_comparison_of_batches_counts_rows_that_differ():
    path = EXAMPLES / "find_poisoned_batch.py"
    spec = importlib.util.spec_from_file_location("find_poisoned_batch", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)

    def record(samples, images):
        return {7: {"samples": torch.tensor(samples), "images": torch.tensor(images)}}

    old = record([1, 2, 3], [[1.0], [2.0], [3.0]])
    gone = torch.tensor([2])
    assert "0 equal" in (
        text := example.compare(old, record([1, 9, 3], [[1.0], [9.0], [3.0]]), gone)
    )
    assert "1 rows of removed" in text and "0 other rows differ" in text
    for other in (record([1, 9, 4], [[1.0], [9.0], [3.0]]), record([1, 9, 3], [[1.0], [9], [3.5]])):
        assert "1 other rows differ" in example.compare(old, other, gone)
    with pytest.raises(AssertionError, match="step 7 has a removed sample"):
        example.compare(old, old, gone)
    losses = {n: {"loss": torch.tensor(5.0 if n == 8 else 1.0)} for n in range(12)}
    assert example.jump(losses) == (8, 5.0, 1.0)


PROGRAM = re.search(r"```python\n(.*?)```", (ROOT / "docs/preemption.md").read_text(), re.DOTALL)[1]
REQUEUE, TOLD = 75, "    told = stopping.to(DEVICE, copy=True)"


SIGNAL = """
    if (epoch, step, dist.get_rank()) == (0, 9, 1):  # one rank is enough, with its worker
        import multiprocessing, subprocess, time
        (worker,) = multiprocessing.active_children()
        subprocess.run(["kill", str(worker.pid), str(os.getpid())])  # not by its parent
        time.sleep(1)
"""


def run_job_of_page(folder, ranks, is_preempted=False):
    """Run the job in a folder; the exit codes, and the losses of each step on the ranks."""
    script, port = folder / "job.py", str(free_port())
    (head, tail), told = PROGRAM.split(TOLD), SIGNAL if is_preempted else ""
    script.write_text(f"import os\nos.chdir({str(folder)!r})\n{head}{told}{TOLD}{tail}")
    variables = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = [Script(script, RANK=str(rank), **variables) for rank in range(ranks)]
    ended = [one.wait(240) for one in started]
    lines = [re.findall(r"^(\d+) (\d+) (\S+)$", one.stdout, re.MULTILINE) for one in ended]
    losses = {
        (int(epoch), int(step)): [float(each[2]) for each in same]
        for same in zip(*lines, strict=True)
        for epoch, step, _ in same[:1]
    }
    return {one.returncode for one in ended}, losses


def test_a_preempted_job_continues_on_as_many_ranks_and_on_fewer(tmp_path):
    for name in ("whole", "two"):
        (tmp_path / name).mkdir()
    codes, whole = run_job_of_page(tmp_path / "whole", 2)
    assert codes == {0} and len(whole) == 60
    codes, first = run_job_of_page(tmp_path / "two", 2, is_preempted=True)
    assert codes == {REQUEUE} and len(first) == 10
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    codes, rest = run_job_of_page(tmp_path / "two", 2)
    assert codes == {0} and first | rest == whole and not first.keys() & rest.keys()
    codes, alone = run_job_of_page(tmp_path / "one", 1)
    assert codes == {0} and alone.keys() == rest.keys()
    for at, (loss,) in alone.items():
        assert loss == pytest.approx(sum(whole[at]) / 2, rel=1e-4), at


@pytest.mark.slow
def test_the_script_of_the_verify_page_passes(tmp_path):
    verify = [sys.executable, "-m", "fastseed", "verify", "--seed", "42", "--no-other-seed"]
    done = subprocess.run(
        [*verify, str(EXAMPLES / "train_points.py"), "{run}/c.pt"], capture_output=True, text=True,
        cwd=tmp_path, env=clean_environment(), timeout=300,
    )  # fmt: skip
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr
