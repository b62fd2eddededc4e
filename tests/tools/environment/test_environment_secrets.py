"""Planted secrets of realistic kinds, and none of them in any byte that comes out."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from urllib.parse import quote

import pytest
from helpers.support import SCRIPTS, clean_environment

from fastseed.tools.environment import redact, variable_names
from fastseed.tools.environment.redact import MARK, Scrubber, looks_random

PEM = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jd\n"
    "HIAAAAGYmNyeXB0{}\n-----END OPENSSH PRIVATE KEY-----\n"
)

# Environment variables: name -> (canary, the value around it). Many names say nothing to a filter
# that looks for API, TOKEN, KEY, SECRET, PASS, SIGNATURE and HTTP_COOKIE.
VARIABLES = {
    "DATABASE_URL": ("pelican-Quartz7", "postgres://svc:{}@db.example.org:5432/train"),
    "REDIS_URL": ("mango!Tundra5", "redis://:{}@cache:6379/0"),
    "SENTRY_DSN": ("0cf81e2ab94d4c7e8d5b1f3a6e7c9d02", "https://{}@o77.ingest.example.org/42"),
    "SLURM_JWT": ("eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJqZCJ9.Wk3pQ", "{}"),
    "GH_PAT": ("orchid-lantern-9", "{}"),
    "MYSQL_PWD": ("walrus44", "{}"),
    "OPENLDAP_BINDPW": ("ferret-Basalt3", "{}"),
    "AZURE_STORAGE_CONNECTION": ("dGhpbmdz8Kx+Qm4=", "Protocol=https;AccountKey={};Suffix=x"),
    "CHAT_HOOK_URL": ("XyZ81kQmWp0rTfLs", "https://hooks.slack.com/services/T01/B02/{}"),
    "PIP_EXTRA_INDEX_URL": ("heron_Umber2", "https://ci:{}@pypi.example.org/simple"),
    "https_proxy": ("sable.Ingot8", "http://worker:{}@proxy.example.org:3128"),
    "LICENSE_STRING": ("comet-drizzle-6", "{}"),
    "TF_VAR_db_pw": ("gannet.Ochre1", "{}"),
    "REGISTRY_CONFIG": ("Y2k6a2VzdHJlbC1TaWx0NQ==", '{{"auths": {{"r": {{"auth": "{}"}}}}}}'),
    "DEPLOY_ID": ("Zm9vYmFy9sK2Lq7", PEM),
    "SERVICE_SETTINGS": ("lynx-Gravel4", '{{"host": "h", "password": "{}"}}'),
    "TRACKER": ("c81d5e0f7a934b26ae10f4d2b8c6957e3f21a0bd", "{}"),
    "TG_BOT": ("AAHk3jd0fPq_9xWvLmZrTyUiOpAsDfGhJkL", "123456789:{}"),
    "CUDA_LICENSE_KEY": ("otter-Flint2", "{}"),  # of an allowed prefix
    "NCCL_TOPO_FILE": ("bison~Chalk6", "https://nccl:{}@files.example.org/topo.xml"),
    "TORCH_TRACE_LABEL": ("ibex-Marl77", "run token={}"),
    "LD_LIBRARY_PATH": ("vole_Scree5", "/opt/api_key={}/lib"),
    "LOADEDMODULES": ("newt-Loess31", "gcc/12.2:licensed/access_token={}"),
    "_LMFILES_": ("crane=Gneiss2", "/apps/ro:{}@modules.example.org/gcc"),
    "UNNAMED_THING": ("AKIAQ7RX2ZTL5NVBWEKD", "{}"),
}
ARGUMENTS = {
    "option": ("stoat-Pumice8", ["--api-key", "{}"]),
    "assignment": ("tapir-Shale4", ["--db-password={}"]),
    "user": ("egret/Tuff90", ["-u", "admin:{}"]),
    "header": ("kiwi.Slate.616", ["Authorization: Bearer {}"]),
    "url": ("puma@Skarn7", ["--store", "s3://AK:{}@minio.example.org/bucket"]),
    "attached": ("marten-Opal5", ["-p{}"]),
}
# What is not committed, by file: before (None: a new file that is added), after, and the canary.
DIFFS = {
    "literal.py": ("dingo-Topaz6", "password = None\n", 'password: str = "{}"\n'),
    "called.py": ("gecko-Beryl1", "x = 1\n", 'os.environ.setdefault("DB_PWD", "{}")\n'),
    "below.py": ("quokka-Agate8", "x = 1\n", 'api_key = (\n    "{}"\n)\n'),
    "gone.py": ("magpie-Onyx22", 'client_secret = "{}"\n', "client_secret = None\n"),
    "context.py": ("plover-Zircon3", 'TOKEN = "{}"\nx = 1\n', 'TOKEN = "{}"\nx = 2\n'),
    "argument.py": ("v9Kx2LqT7mZp4WsRb8Yd1HnC", "x = 1\n", 'connect("admin", "{}")\n'),
    "settings.yaml": ("shrike-Garnet4", "a: 1\n", "a: 1\nsmtp_password: {}\n"),
    "run.sh": ("curlew-Jasper5", "x\n", "curl -H 'Authorization: Basic {}=' https://e.org\n"),
    "notebook.ipynb": ("dunlin-Spinel6", "[]\n", '["token = \\"{}\\"\\n"]\n'),
    "prod.env": ("whimbrel9", "A=1\n", "A=1\nANYTHING={}\n"),
    "deploy.key": ("turnstone-7", "a\n", "{}\n"),
    "pom.xml": ("knot-Peridot8", "<a/>\n", "<password>{}</password>\n"),
    "url.py": ("ruff_Citrine2", "x = 1\n", 'open("https://u:{}@files.example.org/x")\n'),
    "key.txt": ("Q0h6c2Rma2pzZGhma3Nkag", "x\n", PEM),
}
REMOTES = {
    "origin": ("avocet-Kunzite3", "https://oauth2:{}@git.example.org/team/run.git"),
    "backup": ("ghp_q8Zx7Vb2Nm5Lk0Jh3Gf6Ds9Aa1Ss4Dd7Ff0", "https://{}@github.com/team/run.git"),
    "query": ("smew-Larimar1", "https://git.example.org/run.git?private_token={}"),
}
PLANTED_ELSEWHERE = {
    "direct_url": "grebe-Howlite8",
    "vcs_url": "scoter-Jade99",
    "editable_remote": "teal-Moonstone4",
    "editable_diff": "garganey-Pyrite5",
    "conda_channel": "tk-4410-wigeon-Rhodonite",
    "library_path": "pochard-Sodalite7",
    "compiler": "gadwall-Sugilite2",
    "gpu": "merganser-Thulite6",
    "python_path": "eider-Unakite3",
    "untracked_name": "fulmar-Variscite9",
}
CANARIES = {
    **{f"variable {k}": v[0] for k, v in VARIABLES.items()},
    **{f"argument {k}": v[0] for k, v in ARGUMENTS.items()},
    **{f"diff {k}": v[0] for k, v in DIFFS.items()},
    **{f"remote {k}": v[0] for k, v in REMOTES.items()},
    **PLANTED_ELSEWHERE,
}


def git(folder, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=30,
    )


def repository(folder, files):
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "start")


def distribution(site, name, direct_url):
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "direct_url.json").write_text(json.dumps(direct_url))


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\necho '{text}' >&2\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Everything planted: (working folder, environment, the script's arguments)."""
    root = tmp_path_factory.mktemp("planted")
    work, site, c = root / "work", root / "site", PLANTED_ELSEWHERE
    repository(work, {k: old.replace("{}", v) for k, (v, old, _) in DIFFS.items()})
    for name, (canary, _, new) in DIFFS.items():
        (work / name).write_text(new.replace("{}", canary))
    for name, (canary, url) in REMOTES.items():
        git(work, "remote", "add", name, url.format(canary))
    (work / f"token={c['untracked_name']}.txt").write_text("x")
    # A value that a variable's name gives away, in code that says nothing of it.
    (work / "literal.py").write_text(
        (work / "literal.py").read_text() + f'login("root", "{VARIABLES["MYSQL_PWD"][0]}")\n'
    )
    library = repository(root / "mylib", {"a.py": "x = 1\n"})
    library = root / "mylib"
    git(library, "remote", "add", "origin", f"https://u:{c['editable_remote']}@git.example.org/l")
    # The remote's password again, where nothing says what it is.
    (library / "a.py").write_text(
        f'secret = "{c["editable_diff"]}"\nlogin("root", "{c["editable_remote"]}")\n'
    )
    editable = {"url": f"file://{library}", "dir_info": {"editable": True}}
    distribution(site, "mylib", editable)
    distribution(site, "a", {"url": f"https://u:{c['direct_url']}@e.org/a.whl", "archive_info": {}})
    commit = {"vcs": "git", "commit_id": "1" * 40, "requested_revision": "main"}
    url = f"https://git.example.org/b.git?access_token={c['vcs_url']}"
    distribution(site, "b", {"url": url, "vcs_info": commit})
    (root / "conda" / "conda-meta").mkdir(parents=True)
    (root / "conda" / "conda-meta" / "x.json").write_text(
        json.dumps(
            {
                "name": "x",
                "version": "1",
                "channel": f"https://conda.example.org/t/{c['conda_channel']}/main",
            }
        )
    )
    mapped = root / f"password={c['library_path']}" / "libplanted.so.1"
    mapped.parent.mkdir()
    shutil.copy(shared_library(), mapped)
    program(root / "bin" / "gcc", f"gcc (https://u:{c['compiler']}@e.org) 12.2.0")
    card = f"0, NVIDIA token={c['gpu']}, GPU-1, 550.1, v, 1, N/A, N/A, Default, Enabled, 700"
    program(root / "bin" / "nvidia-smi", card)
    environ = {k: value.format(v) for k, (v, value) in VARIABLES.items()}
    environ |= {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{site}:{root}/auth_token={c['python_path']}",
        "CONDA_PREFIX": str(root / "conda"),
        "HOME": str(root),
    }
    arguments = [part.format(v) for v, parts in ARGUMENTS.values() for part in parts]
    return work, environ, ["--load", str(mapped), "--", *arguments]


def shared_library():
    """A small library that every process has mapped: its file."""
    with open("/proc/self/maps") as maps:
        found = re.search(r"(/\S+/libm[.-]\S*|/\S+/libc[.-]\S*|/\S+/libz[.-]\S*)", maps.read())
    assert found, "no C library in /proc/self/maps"
    return found.group(1)


def process(planted, *command):
    """(exit code, all that a process in the planted folder printed)."""
    work, environ, _ = planted
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=work,
        env=clean_environment(**environ),
        capture_output=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


def captured(planted, folder, *options):
    """Everything that comes out of a capture: what is printed and every file's bytes."""
    code, printed = process(
        planted, SCRIPTS / "environment_capture.py", folder, *options, *planted[2]
    )
    assert code == 0, printed.decode()
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert len(files) >= 3  # the document, the patches of two repositories
    return printed + b"".join(str(p).encode() + p.read_bytes() for p in files)


def forms(canary):
    """A canary as it may look in an output."""
    raw = canary.encode()
    encoded = base64.b64encode(raw).rstrip(b"=")
    quoted = [quote(canary, safe="").encode(), json.dumps(canary)[1:-1].encode()]
    return {raw, encoded, *quoted, raw.hex().encode()}


def leaks(output):
    return [name for name, canary in CANARIES.items() if any(f in output for f in forms(canary))]


def test_there_are_at_least_thirty_canaries_and_no_two_alike():
    values = list(CANARIES.values())
    assert len(set(values)) == len(values) >= 30


def test_without_the_scrubber_every_canary_comes_out(planted, tmp_path):
    """The control: all of them are where a capture looks."""
    output = captured(planted, tmp_path / "c", "--all-env", "--unscrubbed")
    assert sorted(set(CANARIES) - set(leaks(output))) == []


@pytest.mark.parametrize("options", [(), ("--all-env",)], ids=["allowed", "all-env"])
def test_no_canary_comes_out(planted, tmp_path, options):
    folder = tmp_path / "c"
    output = captured(planted, folder, *options)
    assert leaks(output) == []
    other = tmp_path / "other"
    commands = (
        ("capture", other, *options),
        ("capture", other, "--overwrite", "--json", *options),
        ("capture", other, *options),  # refused: it is there
        ("show", folder),
        ("show", folder, "--json"),
        ("diff", folder, other, "--all"),
        ("diff", folder, other, "--json"),
    )
    calls = json.dumps([["env", *map(str, command)] for command in commands])
    code, printed = process(planted, SCRIPTS / "cli_calls.py", calls)
    assert code == 0 and leaks(printed) == []
    assert b"[0, 0, 2, 0, 0, 1, 1]" in printed
    assert leaks(b"".join(p.read_bytes() for p in other.rglob("*") if p.is_file())) == []
    document = json.loads((folder / "environment.json").read_text())
    assert document["sections"]["packages"]["b"]["commit_id"] == "1" * 40
    assert document["sections"]["git"]["diff"]["redactions"] >= len(DIFFS)
    assert ("DATABASE_URL" in document["sections"]["variables"]) == bool(options)


# 30 names that held secrets in published settings and incident reports' kinds of variables.
REAL_NAMES = """
    DATABASE_URL REDIS_URL MONGODB_URI SENTRY_DSN AMQP_URL CELERY_BROKER_URL SLACK_WEBHOOK
    PIP_INDEX_URL HTTPS_PROXY KRB5CCNAME GH_PAT MYSQL_PWD SLURM_JWT LDAP_BINDPW SMTP_CRED
    AZURE_STORAGE_CONNECTION_STRING DOCKER_CONFIG_JSON NPM_CONFIG_USERCONFIG VAULT_UNSEAL
    GOOGLE_CREDENTIALS AWS_SECRET_ACCESS_KEY GITHUB_TOKEN OPENAI_API_KEY WANDB_API_KEY DB_PASSWORD
    HF_TOKEN COOKIE_SECRET SSH_AUTH_SOCK PGPASSWORD STRIPE_SIGNATURE
"""


def test_the_allow_list_keeps_no_real_secret_name_where_a_name_filter_does():
    listed = REAL_NAMES.split()
    django = re.compile("API|AUTH|TOKEN|KEY|SECRET|PASS|SIGNATURE|HTTP_COOKIE", re.I)
    assert len(listed) == 30
    assert [name for name in listed if variable_names.is_allowed(name)] == []
    assert sum(not django.search(name) for name in listed) >= 19


@pytest.mark.parametrize(
    "name",
    (
        *("CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "OMP_NUM_THREADS", "PYTHONHASHSEED"),
        *("SLURM_JOB_ID", "TOKENIZERS_PARALLELISM", "NCCL_ALGO", "LD_PRELOAD", "LOCAL_RANK"),
        *("NVIDIA_TF32_OVERRIDE", "MKL_CBWR"),
    ),
)
def test_the_allow_list_keeps_what_matters(name):
    assert variable_names.is_allowed(name)


@pytest.mark.parametrize(
    "text",
    [
        "https://github.com:443/x/y@v1",
        "git+ssh://git@host:22/x@v1",
        "git@github.com:team/run.git",
        "basic training of a digest tree",
        "OMP_NUM_THREADS=4",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
        "key = make_key()",
        "test_float64_int32_complex128_bf16_behaviour",
        "SomeVeryLongCamelCaseNameOfAClass2Test",
    ],
)
def test_what_is_no_secret_stays(text):
    assert Scrubber().code(text, literals=True) == text


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("https://u:p@ss@host/x", f"https://{MARK}@host/x"),
        ("postgres://u:pa/ss@h/db", f"postgres://{MARK}@h/db"),
        ("--token=abcd", f"--token={MARK}"),
        ('secret = """\n+one\n+two\n+"""', f'secret = """{MARK}\n+{MARK}\n+{MARK}\n+{MARK}"""'),
        ('password = "cut short\nnext', f'password = "{MARK}\nnext'),
    ],
)
def test_what_is_taken_out_is_no_more_than_the_secret(text, wanted):
    assert Scrubber().code(text, literals=True) == wanted


def test_scrubbing_twice_is_scrubbing_once():
    texts = [value.format(v) for v, value in VARIABLES.values()]
    for text in texts:
        once = Scrubber().strict(text)
        assert Scrubber().strict(once) == once


def test_a_known_value_is_removed_in_every_form():
    scrubber = Scrubber({"SMTP_PASSWORD": "a b/c+9"})
    encoded = base64.b64encode(b"a b/c+9").decode()
    for form in ("a b/c+9", "a%20b%2Fc%2B9", "a+b%2Fc%2B9", encoded):
        assert scrubber.text(f"x{form}y") in (f"x{MARK}y", f"x{form}y") and MARK in scrubber.text(
            f"x {form} y"
        )


def test_a_switch_is_no_secret_value():
    scrubber = Scrubber({"USE_AUTH": "true", "KEY_COUNT": "12", "AUTH_DIR": "/usr/lib"})
    assert scrubber.text("true 12 /usr/lib/libm.so") == "true 12 /usr/lib/libm.so"


def test_random_text_is_told_from_names():
    assert looks_random("v9Kx2LqT7mZp4WsRb8Yd1HnC")
    assert looks_random("c81d5e0f7a934b26ae10f4d2b8c6957e3f21a0bd")
    assert not looks_random("test_python_imports_go_down_2")
    assert not looks_random("x86_64-linux-gnu-g++-12")
    assert not looks_random("1234567890123456789012345678901234567890")


def test_hostile_text_is_scrubbed_in_time():
    """Patterns that would take quadratic time or worse on what no one wrote by hand."""
    for text in (
        'a="' * 3000,
        "x:" * 5000,
        "secret" * 3000,
        "://" * 5000,
        '"""' * 3000,
        "a " * 9999,
        "a://" * 100_000,
        "a:/b:" * 20_000,
        "a:b" * 20_000,
    ):
        assert isinstance(Scrubber().code(text, literals=False), str)


@pytest.mark.parametrize(
    "text",
    [
        "curl -H 'Authorization: token {}' https://e.org",
        '{{"Authorization": "ApiKey {}"}}',
        "Authorization=Basic {}",
        "curl -u admin:{} https://e.org",
        'curl --user "admin:{}" https://e.org',
        "sshpass -p {} ssh host",
        "docker login -u me -p '{}' r.example.org",
        "mysql -h db -p{} train",
        "ENV DB_PASSWORD {}",
        "setenv FOO_TOKEN {}",
        "aws configure set aws_secret_access_key {}",
        '{{"name": "DB_PASSWORD", "value": "{}"}}',
        "+  - name: DB_PASSWORD\n+    value: {}",
        "Server=tcp:x,1433;User ID=sa;Password=My word {};Encrypt=True",
    ],
)
def test_what_tools_take_as_a_secret_is_removed(text):
    for scrub in (Scrubber().text, lambda t: Scrubber().code(t, literals=False)):
        assert "gnu-Flint7" not in scrub(text.format("gnu-Flint7"))


def test_every_form_of_the_mark_is_harmless():
    assert redact.MARK == MARK and Scrubber().removed == 0
