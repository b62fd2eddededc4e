"""Planted secrets of realistic kinds; none of them is in any byte of a default capture."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from urllib.parse import quote

import pytest
from helpers.repositories import git, repository
from helpers.support import SCRIPTS, clean_environment

from fastseed.cli import main
from fastseed.tools import environment
from fastseed.tools.environment import sources
from fastseed.tools.environment.sources import REDACTED, Repositories, variables

PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n{}\n-----END OPENSSH KEY--\n"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJqZCJ9."
# Name of a variable: the value around its canary, {}.
VARIABLES = {
    "DATABASE_URL": "postgres://svc:{}@db.example.org:5432/train",
    "SENTRY_DSN": "https://{}@o77.ingest.example.org/42",
    "SLURM_JWT": JWT + "{}",
    "GH_PAT": "ghp_{}",
    "GITHUB_TOKEN": "{}",
    "AWS_SECRET_ACCESS_KEY": "{}",
    "MYSQL_PWD": "{}",
    "SLACK_WEBHOOK": "https://hooks.slack.com/services/T01/B02/{}",
    "https_proxy": "http://worker:{}@proxy.example.org:3128",
    "TF_VAR_db_pw": "{}",
    "SERVICE_SETTINGS": '{{"host": "h", "password": "{}"}}',
    "UNNAMED_THING": "{}",
    "USER": "{}",
    "HOME": "/home/{}",
    "CONDA_DEFAULT_ENV": "{}",
    "SLURM_NODELIST": "{}[1-4]",
    "CFLAGS": '-DTOKEN="{}"',
    # Of families that are stored, with names of secrets or values that are no settings.
    "CUDA_LICENSE_KEY": "{}",
    "HF_TOKEN": "{}",
    "NCCL_TOPO_FILE": "https://nccl:{}@files.example.org/topo.xml",
    "NCCL_SOCKET_IFNAME": "https://{}@files.example.org",
    "TORCH_TRACE_LABEL": "run token={}",
    "NCCL_ALGO": "conf: password {}",
    "LOADEDMODULES": "gcc/12.2:licensed/access_token={}",
}
# A file of the repository: its text before and after.
DIFFS = {
    "literal.py": ("password = None\n", 'password: str = "{}"\n'),
    "gone.py": ('client_secret = "{}"\n', "client_secret = None\n"),
    "context.py": ('TOKEN = "{}"\nx = 1\n', 'TOKEN = "{}"\nx = 2\n'),
    "prod.env": ("A=1\n", "A=1\nANYTHING={}\n"),
    "key.txt": ("x\n", PEM),
}
# git config of the repository.
CONFIG = {
    "remote.origin.url": "https://oauth2:{}@git.example.org/team/run.git",
    "http.extraheader": "AUTHORIZATION: bearer {}",
    "url.https://u:{}@git.example.org/.insteadOf": "git:",
    "branch.main.description": "{}",
}
OTHERS = (
    *("working folder", "branch", "untracked name", "untracked text", "submodule url"),
    *("package url", "package query", "package revision"),
)


def canary(number):
    """Return a secret: no rule finds it by its form."""
    return f"{('walrus', 'otter', 'ibex', 'lynx')[number % 4]}-Quartz{number * 7919 % 9973}"


KINDS = {"variable": VARIABLES, "diff": DIFFS, "config": CONFIG}
NAMES = [f"{kind} {name}" for kind, names in KINDS.items() for name in names] + list(OTHERS)
CANARIES = {name: canary(number) for number, name in enumerate(NAMES, 100)}


def fill(kind, name, text):
    return text.replace("{{", "{").replace("}}", "}").replace("{}", CANARIES[f"{kind} {name}"])


def distribution(site, name, direct_url):
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "direct_url.json").write_text(json.dumps(direct_url))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Plant everything: (working folder, environment)."""
    root, c = tmp_path_factory.mktemp("planted"), CANARIES
    work = repository(
        root / c["working folder"],
        {name: fill("diff", name, before) for name, (before, _) in DIFFS.items()},
    )
    for name, (_, after) in DIFFS.items():
        (work / name).write_text(fill("diff", name, after))
    for name, value in CONFIG.items():
        git(work, "config", fill("config", name, name), fill("config", name, value))
    git(work, "checkout", "-q", "-b", c["branch"])
    (work / f"{c['untracked name']}.txt").write_text(c["untracked text"])
    (work / ".gitmodules").write_text(f"[submodule]\n url = https://{c['submodule url']}@e.org\n")
    site = root / "site"
    editable = {"url": f"file://{work}", "dir_info": {"editable": True}}
    distribution(site, "mylib", editable)
    distribution(site, "a", {"url": f"https://u:{c['package url']}@e.org/a.whl"})
    vcs = {"vcs": "git", "commit_id": "1" * 40, "requested_revision": c["package revision"]}
    url = f"https://git.example.org/b.git?access_token={c['package query']}"
    distribution(site, "b", {"url": url, "vcs_info": vcs})
    values = {name: fill("variable", name, value) for name, value in VARIABLES.items()}
    values |= {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    return work, values


def captured(planted, folder, *options):
    """Return all that comes out of a capture: what is printed, and every file."""
    work, variables = planted
    script = SCRIPTS / "environment_capture.py"
    done = subprocess.run(
        list(map(str, [sys.executable, script, folder, *options])),
        cwd=work,
        env=clean_environment(**variables),
        capture_output=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["problems"] == []
    files = [path for path in folder.rglob("*") if path.is_file()]
    return done.stdout + done.stderr + b"".join(path.read_bytes() for path in files)


def forms(text):
    """Return the forms of a canary that an output may have, hashes without a key among them."""
    raw = text.encode()
    plain = {raw, base64.b64encode(raw).rstrip(b"="), quote(text).encode(), raw.hex().encode()}
    hashes = {getattr(hashlib, n)(raw).hexdigest()[:16].encode() for n in ("md5", "sha1", "sha256")}
    return plain | hashes


def leaks(output):
    return [name for name, text in CANARIES.items() if any(f in output for f in forms(text))]


@pytest.mark.slow
def test_what_is_redacted_would_leak(planted, tmp_path):
    """The control: with every value stored, and the patches, the search finds the canaries."""
    found = leaks(captured(planted, tmp_path / "c", "--plain"))
    expected = {f"variable {name}" for name in VARIABLES if name != "LOADEDMODULES"}
    assert set(found) >= expected | {f"diff {name}" for name in DIFFS}


@pytest.mark.costly("captures an environment twice")
def test_no_canary_comes_out(planted, tmp_path, capsysbinary):
    output = captured(planted, tmp_path / "a")
    assert leaks(output) == []
    environment.capture(tmp_path / "b")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    for command in (["show", a, "--all"], ["diff", a, b, "--all"], ["diff", a, b, "--json"]):
        assert main(command) in (0, 1)
    shown = capsysbinary.readouterr()
    assert leaks(shown.out + shown.err) == [] and b"packages" in shown.out
    found = environment.load(a)
    assert found["packages"]["b"] == f"1.0, commit {'1' * 40}"
    of_the_test = "working/changed/"  # the checkout of fastseed may have changes too
    changed = {name: how for name, how in found["git"].items() if name.startswith(of_the_test)}
    assert changed == {f"working/changed/{name}": "M" for name in sorted(DIFFS)}
    assert found["git"]["working/untracked"].startswith("2 files, ")
    assert not list((tmp_path / "a").glob("*.patch"))
    assert set(VARIABLES) <= found["variables"].keys()


@pytest.mark.parametrize(
    "name, value, stored",
    [
        *(("OMP_NUM_THREADS", "4", True), ("CUBLAS_WORKSPACE_CONFIG", ":4096:8", True)),
        *(("CUDA_VISIBLE_DEVICES", "0,1", True), ("NCCL_ALGO", "^NVLS", True)),
        *(("PYTHONHASHSEED", "random", True), ("FASTSEED_MASTER_SEED", "42", True)),
        *(("PYTORCH_ALLOC_CONF", "expandable_segments:True", True), ("LANG", "C.UTF-8", True)),
        *(("NCCL_IB_HCA", "=mlx5_0:1", True), ("OMP_PLACES", "{0}:4:1", True), ("RANK", "3", True)),
        *(("LD_LIBRARY_PATH", "/opt/cuda/lib64", True), ("TOKENIZERS_PARALLELISM", "false", True)),
        *(("OMP_NUM_THREADS", "https://u:p@e.org", False), ("LANG", "a b", False)),
        *(("PATH", "/bin", False), ("HOME", "x", False), ("SLURM_JWT", "1", False)),
        *(("HF_TOKEN", "x", False), ("JAX_Api_Key", "x", False), ("MLFLOW_RANKING", "1", False)),
        ("CUDA_VISIBLE_DEVICES", "x" * 500, False),
    ],
)
def test_settings_are_stored_and_everything_else_is_redacted(name, value, stored):
    assert variables({name: value}) == {name: value if stored else REDACTED}


def state(folder):
    """Return the state of a repository, and its difference as text."""
    repositories = Repositories()
    found = repositories._state(folder, "r")
    return {name.removeprefix("r/"): value for name, value in found.items()}, repositories.texts


def changed(found):
    """Return the files that differ."""
    names = (name for name in found if name.startswith("changed/"))
    return {name.removeprefix("changed/"): found[name] for name in names}


def test_a_repository_is_read_once(tmp_path):
    work, repositories = repository(tmp_path / "r", {"a.py": "x = 1\n"}), Repositories()
    (work / "part").mkdir()
    assert repositories._state(work, "working") and repositories._state(work / "part", "mine") == {}


def test_the_files_that_differ_and_a_digest(tmp_path):
    work = repository(tmp_path / "r", {"a.py": "x = 1\n", "b.py": "", "c.py": ""})
    clean, texts = state(work)
    assert len(clean["commit"]) == 40 and changed(clean) == {} == texts and not clean["changes"]
    (work / "a.py").write_text("x = 2\n")
    (work / "b.py").unlink()
    (work / "new.py").write_text("y = 1\n")
    git(work, "add", "new.py")
    (work / "untracked.py").write_text("z = 1\n")
    found, _ = state(work)
    assert changed(found) == {"a.py": "M", "b.py": "D", "new.py": "A"}
    assert found["untracked"].startswith("1 files, ") and "untracked.py" not in str(found)
    digests = {found["changes"], found["untracked"]}
    (work / "a.py").write_text("x = 3\n")
    (work / "untracked.py").write_text("z = 2\n")
    found, _ = state(work / ".")
    assert len(digests | {found["changes"], found["untracked"]}) == 4


def test_a_patch_applies(tmp_path):
    work = repository(tmp_path / "r", {"a.py": "x = 1\n", "data": "\0"})
    (work / "a.py").write_text("x = 2\n")
    (work / "data").write_bytes(b"\0\xff")
    _, patches = state(work)
    (tmp_path / "p").write_text(patches["r"], errors="surrogateescape")
    git(work, "checkout", "-q", ".")
    git(work, "apply", str(tmp_path / "p"))
    assert (work / "a.py").read_text() == "x = 2\n" and (work / "data").read_bytes() == b"\0\xff"


def test_a_failing_filter_is_not_a_clean_repository(tmp_path):
    work = repository(tmp_path / "r")
    git(work, "config", "filter.y.clean", "false")
    git(work, "config", "filter.y.required", "true")
    (work / ".gitattributes").write_text("*.py filter=y\n")
    (work / "a.py").write_text("x = 2\n")
    assert state(work)[0]["changes"] == "git failed"


def test_a_submodule_is_a_file_that_differs(tmp_path):
    inner, work = repository(tmp_path / "i"), repository(tmp_path / "r")
    git(work, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "in")
    git(work, "commit", "-q", "-m", "in")
    assert changed(state(work)[0]) == {}
    (work / "in" / "a.py").write_text("x = 2\n")
    assert changed(state(work)[0]) == {"in": "M"}


def test_variables_of_git_itself_are_ignored(tmp_path, monkeypatch):
    work, other = repository(tmp_path / "r"), repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "/bin/false")
    (work / "a.py").write_text("x = 2\n")
    assert changed(state(work)[0]) == {"a.py": "M"}


def test_no_commit_and_no_repository(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path / "r")], check=True, timeout=30)
    (tmp_path / "r" / "a.py").write_text("x = 2\n")
    assert state(tmp_path / "r")[0]["commit"] is None
    (tmp_path / "none").mkdir()
    for folder in ("none", "gone"):
        assert Repositories()._state(tmp_path / folder, "n") == {}


def test_untracked_links_and_large_files_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_MAX_BYTES", 1000)
    work = repository(tmp_path / "r")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    (work / "link").symlink_to(tmp_path / "large")
    os.mkfifo(work / "pipe")
    (work / "large").write_bytes(b"x" * 100_000)
    (work / "small").write_text("x")
    first = state(work)[0]["untracked"]
    assert first.startswith("3 files, ")  # git does not list pipes
    (work / "large").write_bytes(b"y" * 100_000)
    assert state(work)[0]["untracked"] == first
    (work / "small").write_text("y")
    assert state(work)[0]["untracked"] != first
