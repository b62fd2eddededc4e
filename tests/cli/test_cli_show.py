"""``fastseed show`` and ``diff`` of jobs: what they print, strict JSON, exit codes."""

import json
import re

import pytest
import torch
from torch.utils.data import DataLoader

import fastseed
from fastseed.cli import exit_codes, main
from fastseed.tools import checkpoints, environment


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkpoint after 7 steps, a job that continued it without a sample, and a mixture."""
    monkeypatch.chdir(tmp_path)
    fastseed.init(42, rank=0, world_size=1)
    made = fastseed.data.steps(DataLoader(range(10), batch_size=4, shuffle=True), epochs=3)
    steps = iter(made)
    for _ in range(7):
        next(steps)
    torch.save({"steps": made.state_dict()}, "a.pt")
    made.quarantine(int(made.lineage().at(2, 1).sample[0]))
    made.lineage().save("b.json")
    sources = {"web": 8, "code": 2}
    mixture = fastseed.data.MixtureSampler(sources, {"web": 0.5, "code": 0.5})
    fastseed.data.steps(DataLoader(range(10), 2, sampler=mixture), 1).lineage().save("m.json")
    return tmp_path


def test_a_recording_without_a_step_is_shown(tmp_path, capsys):
    """Of a job that was killed after its header, or later."""
    fastseed.debug.Watch(torch.nn.Linear(2, 2), path=tmp_path).close()
    path = tmp_path / "rank-0.watch"
    header = path.read_bytes().splitlines(keepends=True)[0]
    for data in (path.read_bytes(), header, header + b'{"crc32": "'):
        path.write_bytes(data)
        code, found = document(capsys, "show", tmp_path)
        (row,) = found["recordings"]
        assert code == exit_codes.OK and (row["steps"], row["numbers"]) == (0, "-")
        assert (row["weights"] == "-") == (len(data) < 300)
        assert row["incomplete"] == (data[-1:] != b"\n")


def ran(capsys, *arguments):
    code = main([*map(str, arguments)])
    return code, capsys.readouterr()


def document(capsys, *arguments):
    code, shown = ran(capsys, *arguments, "--json")
    assert shown.err == "" or code == exit_codes.USAGE

    def refuse(name):
        raise AssertionError(name)

    return code, json.loads(shown.out, parse_constant=refuse)


def test_at_lists_the_samples_of_a_step(folder, capsys):
    lineage = checkpoints.inspect("a.pt").lineage()
    expected = lineage.at(1, 2)
    code, found = document(capsys, "show", "a.pt", "at", 5)
    assert code == exit_codes.OK and found["next"] == {"epoch": 2, "step": 1}
    assert [row["sample"] for row in found["visits"]] == expected.sample.tolist()
    keys = [f"{high << 64 | low:032x}" for low, high in lineage.keys(expected).tolist()]
    assert [row["key"] for row in found["visits"]] == keys
    assert found["visits"][0]["source"] is None
    assert document(capsys, "show", "a.pt", "at", 2, "--epoch", 1)[1] == found
    code, shown = ran(capsys, "show", "a.pt", "at", 5)
    assert code == exit_codes.OK and shown.out.startswith("step 2 of epoch 1\nepoch  step  rank")
    assert "source" not in shown.out and shown.out.endswith("2 visit(s); next: epoch 2, step 1\n")


def test_where_lists_the_visits_to_come_too(folder, capsys):
    lineage = checkpoints.inspect("a.pt").lineage()
    code, found = document(capsys, "show", "a.pt", "where", 3)
    assert code == exit_codes.OK
    points = [(row["epoch"], row["step"], row["row"]) for row in found["visits"]]
    assert points == [(v.epoch, v.step, v.row) for v in lineage.where(3)] and len(points) == 3
    last = int(lineage.at(2, 2).sample[0])
    _, shown = ran(capsys, "show", "a.pt", "where", last)
    assert "3 visit(s), 1 of them to come; next:" in shown.out


def test_samples_of_a_mixture_have_their_source(folder, capsys):
    (row, *_) = document(capsys, "show", "m.json", "where", 9)[1]["visits"]
    assert (row["source"], row["index"], row["sample"]) == ("code", 1, 9)
    _, shown = ran(capsys, "show", "m.json", "where", 9)
    assert shown.out.startswith("sample 9\n") and "index" in shown.out


def test_diff_compares_no_jobs(folder, capsys):
    code, found = document(capsys, "diff", "a.pt", "b.json")
    assert code == exit_codes.USAGE and "A must hold states of generators" in str(found)
    torch.save({**torch.load("a.pt"), "rng": torch.get_rng_state()}, "c.pt")
    code, shown = ran(capsys, "diff", "c.pt", "c.pt")
    assert code == exit_codes.OK and "samples of jobs are not compared" in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "absent.pt", "at", 5),
        ("show", "a.pt", "at", -1),
        ("show", "a.pt", "at", 3, "--epoch", 1),
        ("show", "a.pt", "where", 10),
        ("show", "a.pt", "where", 3, "--task", 2),
        ("show", "a.pt", "at"),
        ("show", "a.pt", "before", 3),
    ],
)
def test_bad_input_ends_with_2(folder, arguments, capsys):
    code, found = document(capsys, *arguments)
    assert code == exit_codes.USAGE == found["error"]["exit_code"] and found["error"]["message"]


def test_show_says_where_a_job_is(folder, capsys):
    for name in ("a.pt", "b.json"):
        code, found = document(capsys, "show", name)
        assert code == exit_codes.OK
        job = {"master_seed": 42, "task": 1, "next": {"epoch": 2, "step": 1}}
        assert found["job"] == job and found["path"] == name
    _, shown = ran(capsys, "show", "a.pt")
    assert shown.out == "job: master seed 42, task 1; next: epoch 2, step 1\n"


def test_things_of_different_kinds_are_not_compared(folder, capsys):
    environment.capture(folder / "environment")
    code, found = document(capsys, "diff", "b.json", "environment")
    assert code == exit_codes.USAGE
    assert "of one kind, got checkpoint or job and environment" in str(found)


def test_the_folder_of_a_run_is_shown_and_compared_with_all_that_it_holds(folder, capsys):
    for name in ("x", "y"):
        environment.capture(folder / name / "environment")
        with fastseed.debug.Watch(torch.nn.Linear(2, 2), path=folder / name / "watch") as watch:
            watch.record()
    code, found = document(capsys, "show", "x")
    assert code == exit_codes.OK and found["environment"]["torch"]
    (recording,) = found["recordings"]
    assert (recording["rank"], recording["steps"], recording["numbers"]) == (0, 1, "0 to 0")
    code, found = document(capsys, "diff", "x", "y")
    assert code == exit_codes.FOUND and not found["recordings"]["equal"]
    assert found["environments"] == []
    assert document(capsys, "diff", "x", "x")[0] == exit_codes.OK
    _, shown = ran(capsys, "diff", "x/environment", "y")
    assert "note: B alone has a recording, which is not compared" in shown.out
    assert "A must exist, got 'z'" in ran(capsys, "diff", "z", "y")[1].err
    code, shown = ran(capsys, "show", "x", "--all")
    assert "weights" in shown.out and "OMP_NUM_THREADS" not in shown.err


def test_digests_are_shown_with_all_alone(tmp_path, capsys):
    for name, seed in (("a", 1), ("b", 2)):
        torch.manual_seed(seed)
        with fastseed.debug.Watch(torch.nn.Linear(2, 2), path=tmp_path / name) as watch:
            watch.record()
    folders = [str(tmp_path / name) for name in "ab"]
    shown = []
    for words in ([], ["--all"]):
        assert main(["diff", *words, *folders]) == exit_codes.FOUND
        shown.append(capsys.readouterr().out)
    digest = re.compile(r"\b[0-9a-f]{32}\b")
    assert not digest.search(shown[0]) and "parameter weight" in shown[0]
    assert len(digest.findall(shown[1])) >= 4
