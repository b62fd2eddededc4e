"""Secrets in diffs of code, settings and prose: none comes out, and what is none stays readable."""

from __future__ import annotations

import random
import string

import pytest

from fastseed.tools.environment.entropy import looks_random
from fastseed.tools.environment.git import scrub_patch
from fastseed.tools.environment.redact import MARK, Scrubber
from fastseed.tools.environment.redact_source import blank

# Words that must not come out: no rule knows them by their form.
CANARIES = ("gnu", "lynx", "ibis")

PYTHON = [
    'password = "gnu" "lynx"',
    'password = ("gnu"\n    "lynx")',
    'password = "gnu" \\\n    "lynx"',
    'password = str("gnu")',
    'password = bytes("gnu", "ascii").decode() + "lynx"',
    'x = os.environ.get("DB_PASSWORD", "gnu")',
    'password = os.environ.get("P", "gnu")',
    'password = os.environ.get(\n    "P",\n    "gnu",\n)',
    'parser.add_argument("--password", default="gnu")',
    'parser.add_argument(\n    "--password",\n    type=str,\n    default="gnu",\n)',
    'requests.get(url, auth=("gnu", "lynx"))',
    'requests.get(\n    url,\n    auth=(\n        "gnu",\n        "lynx",\n    ),\n)',
    'if password != "gnu":\n    pass',
    'if "gnu" == password:\n    pass',
    'assert token == "gnu", "lynx"',
    "# password is gnu",
    "x = 1  # the password (gnu)",
    "# gnu is the password",
    'passwords = ["gnu", "lynx", "ibis"]',
    'passwords = [\n    "gnu",\n    "lynx",\n]',
    'PASSWORDS = {\n    "root": "gnu",\n    "admin": "lynx",\n}',
    'api_tokens = ["gnu", "lynx"]',
    'd = {"password": "gnu" if x else "lynx"}',
    'd = {\n    "password":\n        "gnu",\n}',
    'd["api key"] = "gnu"',
    'password = """gnu\nlynx\n  ibis"""',
    'password = (\n    prefix\n    + "gnu"\n)',
    'password = prefix.join(\n    ["gnu", "lynx"],\n)',
    'def password():\n    x = 1\n    return "gnu"',
    'def login(user="root", password="gnu", other="lynx"):\n    pass',
    'private_key = b"gnu"',
    "credentials = 'gnu', 'lynx'",
    'connect("root",\n        "x", secret="gnu")',
    '"""\npassword: gnu lynx\n"""',
    'token = f"gnu{x}lynx"',
    'password = "gnu\\"lynx"',
    'dbPass = "gnu"',
    'BINDPW = "gnu"',
    'client.setAuth("gnu")',
    'd = dict(user=user, pass="gnu")',
    'd["pass"] = "gnu"',
]
C = [
    'const char* password = "gnu" "lynx";',
    'const char* password() {\n  return "gnu";\n}',
    'if (strcmp(token, "gnu") == 0) {',
    "// password is gnu",
    "/* the password: gnu */",
    "const password = `gnu\nlynx`;",
    'const apiKey = env.API_KEY || "gnu";',
    'const apiKey =\n  "gnu";',
    'auth: { user: "gnu", pass: "lynx" },',
]
TEXT = [
    "password: |\n  gnu\n  lynx: ibis",
    "password: >-\n  gnu\n\n  lynx",
    "password: gnu lynx",
    "password: gnu, lynx; ibis",
    'password: x"gnu lynx',
    "password: 'gnu\n  lynx'",
    "passwords:\n  - gnu\n  - lynx",
    "passwords:\n- gnu\n- lynx",
    "passwords: [gnu, lynx]",
    "passwords: [\n  gnu,\n  lynx\n]",
    "auth:\n  user: gnu\n  pass: lynx",
    "secrets:\n  one:\n    two: gnu\n    three:\n      - lynx",
    "secrets:\n  one: |\n    gnu: lynx\n  two: ibis",
    "[secrets]\nuser = gnu\nother=lynx\n\nlast: ibis",
    "[aws.credentials]\nx = gnu, lynx",
    "env:\n  - name: DB_PASSWORD\n    value: gnu lynx",
    '{\n  "name": "DB_PASSWORD",\n  "value": "gnu lynx"\n}',
    'variable "db_password" {\n  default = "gnu"\n}',
    '{"password": "gnu", "other": "lynx"}',
    '"passwords": [\n  "gnu",\n  "lynx"\n],',
    '"auth": {\n  "a": "gnu",\n  "b": {"c": "lynx"}\n},',
    'password = """\ngnu\nlynx\n"""',
    'export PASSWORD="gnu\nlynx"',
    "export PASSWORD=gnu\\ lynx",
    'if [ "$PASSWORD" != "gnu" ]; then',
    "if [ gnu = $PASSWORD ]; then",
    "curl --token \\\n  gnu \\\n  lynx",
    "# password is gnu",
    "The password is gnu.",
    "requirepass gnu",
    "Password=gnu;Other=lynx",
    "<password>\n  gnu\n</password>",
    '<add value="gnu" key="password"/>',
    '<add key="password" value="gnu"/>',
    '"    password = (\\n",\n"        \'gnu\'\\n",\n"    )\\n"',
    "token: gnu:lynx",
    "Authorization:\n  gnu lynx",
    "machine h login x password lynx",
]


def patch(path, lines, sign="+", heading=""):
    text = "".join(f"{sign}{line}\n" for line in lines.split("\n"))
    head = f"diff --git a/{path} b/{path}\nindex 1..2 100644\n--- a/{path}\n+++ b/{path}\n"
    return f"{head}@@ -1,3 +1,9 @@{heading}\n{text}"


CASES = [
    *(("a.py", lines) for lines in PYTHON),
    *(("a.cpp", lines) for lines in C),
    *(("a.yaml", lines) for lines in TEXT),
]


def shown(text):
    return [canary for canary in CANARIES if canary in text]


@pytest.mark.parametrize("path, lines", CASES, ids=[f"{p}-{x[:40]}" for p, x in CASES])
@pytest.mark.parametrize("sign", ["+", "-", " "])
def test_what_stands_beside_a_secrets_name_goes(path, lines, sign):
    before = patch(path, lines, sign)
    assert shown(before)
    after = scrub_patch(before, Scrubber())
    assert shown(after) == [], after
    assert [line[:1] for line in after.split("\n")] == [line[:1] for line in before.split("\n")]


def test_there_are_more_than_80_forms():
    assert len(set(CASES)) == len(CASES) > 80


def test_scrubbing_a_diff_of_code_twice_changes_nothing():
    for lines in PYTHON:
        once = scrub_patch(patch("a.py", lines), Scrubber())
        assert scrub_patch(once, Scrubber()) == once


def test_both_files_of_a_diff_are_followed_for_themselves():
    mixed = "-passwords:\n+other:\n   - gnu\n+  - free\n-  - lynx\n other: 1\n   x: kept\n"
    text = scrub_patch(patch("a.yaml", "")[:-2] + mixed, Scrubber())
    assert shown(text) == [] and "x: kept" in text
    text = scrub_patch(patch("a.yaml", "    - gnu", " ", " passwords:"), Scrubber())
    assert shown(text) == [] and "@@ passwords:" in text
    text = scrub_patch(patch("a.yaml", "x: 1", " ", " password: gnu"), Scrubber())
    assert shown(text) == [] and "x: 1" in text


CODE_THAT_STAYS = """\
def token_count(tokens):
    return len(tokens) + 1
vocab_size = 32000
tokenizer = AutoTokenizer.from_pretrained("gpt2", use_fast=True)
max_tokens=512
model.generate(max_new_tokens=4096, temperature=0.7)
n_tokens = batch.numel() * 2
key = make_key(1234)
for key, value in items: print(key, "x")
password = getpass()
if token is None: raise ValueError(name)
x = compute("a", 'b')  # a comment
author = "somebody"
    pass  # nobody is told
raise ValueError("pass a generator")
self.authors["somebody"] = 'x'
"""
TEXT_THAT_STAYS = """\
vocab_size: 32000
tokenizer: gpt2
max_tokens: 131072
max_new_tokens=512
pad_token_id: 50256
use_auth: true
author: somebody
keyboard: qwerty
tokens per second rose from 12 to 14
all tests pass on the CPU
lr: 0.1
"""


@pytest.mark.parametrize("path, text", [("a.py", CODE_THAT_STAYS), ("a.yaml", TEXT_THAT_STAYS)])
def test_what_is_no_secret_stays_readable(path, text):
    before = patch(path, text.rstrip("\n")).replace("index 1..2", "index 0000000..0000000")
    assert scrub_patch(before, Scrubber()) == before


def test_a_block_ends_where_its_indentation_or_brackets_do():
    text = scrub_patch(patch("a.yaml", "auth:\n  a: gnu\nother:\n  b: kept"), Scrubber())
    assert "b: kept" in text and "  a: " in text
    text = scrub_patch(patch("a.ini", "[secrets]\na = gnu\n[model]\nb = kept"), Scrubber())
    assert "b = kept" in text
    code = (
        'def get_token(self):\n    x = f("kept")\n    password = [\n "gnu",\n ]\n    y = "kept too"'
    )
    text = scrub_patch(patch("a.py", code), Scrubber())
    assert "kept" in text and "kept too" in text and "gnu" not in text
    assert 'd["password"]' in scrub_patch(patch("a.py", 'x = d["password"]'), Scrubber())


def test_a_renamed_file_counts_as_code_only_if_both_names_do():
    text = patch("a.py", "password: gnu").replace("+++ b/a.py", "+++ b/a.yaml")
    assert shown(scrub_patch(text, Scrubber())) == []


ALPHABETS = {
    "letters": string.ascii_letters,
    "lower case": string.ascii_lowercase,
    "upper case": string.ascii_uppercase,
    "base 32": string.ascii_uppercase + "234567",
    "base 36": string.ascii_lowercase + string.digits,
    "base 62": string.ascii_letters + string.digits,
}


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_at_least_97_of_100_random_strings_of_32_characters_are_found(alphabet):
    generator = random.Random(alphabet)
    strings = ["".join(generator.choices(ALPHABETS[alphabet], k=32)) for _ in range(1000)]
    assert sum(map(looks_random, strings)) >= 970
    for line in ("+{}", "-{}", ' x = "{}"'):
        text = patch("a.py", "", "")[:-1] + line.format(strings[0]) + "\n"
        after = scrub_patch(text, Scrubber())
        assert strings[0] not in after and after.splitlines()[-1][0] == line[0]


def test_words_and_alphabets_do_not_look_random():
    for text in (
        string.ascii_lowercase,
        string.ascii_letters,
        "x" * 40,
        "internationalization",
        "CudnnConvolutionBackwardFilterAlgorithm",
        "distributed_data_parallel_communication_hook",
        "NCCL_ASYNC_ERROR_HANDLING_ENVIRONMENT",
        "ConnectionResetByPeerException",
        "uninitializedvalueproblemhandler",
    ):
        assert not looks_random(text), text


def test_a_uuid_is_taken_for_a_secret():
    """Most name something, some are keys, and nothing tells which."""
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    for line in (uuid, f"id: {uuid}", f'x = "{uuid}"'):
        after = scrub_patch(patch("a.py", line), Scrubber())
        assert uuid[-12:] not in after and after.splitlines()[-1].startswith("+")


HOSTILE = [
    *("password", "tokens", "token ", "tokens=", 'password="', "password = (", "auth:\n  - "),
    *('"', "'", '\\"', '"""', "`", "\\", "#", "//", "/*", "(", ")", "[", "{", "}", ") {", "a("),
    *(" ", "\t", "\n", "- ", ": ", "= ", "=", "is ", "|", "[a]", "<", ">", "a.", "a-", "_", "é"),
    *("secret:\n ", "a: |\n", "return ", "def token", "name: ", "value=", "@@ -1 +1 @@\n", "\\n"),
    *("A", "aB", "a1", "qz", "bearer ", "Authorization: ", "--password ", "password\n", "0", "::"),
    *("pass", "a()", "+", "x = ", "a: b\n", "a = (\n", "\x0c", "\r", "name: secret\n"),
]


@pytest.mark.parametrize("comment", ["#", "//", ""])
def test_hostile_text_takes_linear_time(comment):
    """Each would take minutes if any rule's time were quadratic, a mebibyte of all hours."""
    for piece in HOSTILE:
        text = f"password {piece * ((1 << 15) // len(piece.encode()))}"
        clean, _ = blank(text, comment, diff=True)
        assert clean.count("\n") == text.count("\n")
    text = "".join(random.Random(1).choices(HOSTILE, k=300_000))
    assert len(text) >= 1 << 20
    for whole in (text, "password " + text.replace("\n", " ")):
        clean, _ = blank(whole, comment, diff=True)
        assert clean.count("\n") == whole.count("\n")


@pytest.mark.parametrize("path", ["a.py", "a.yaml"])
def test_a_mebibyte_of_a_hostile_diff_takes_linear_time(path):
    pieces = random.Random(2).choices(HOSTILE, k=300_000)
    text = patch(path, "".join(pieces).replace("\n", "\n+"))
    assert len(text) >= 1 << 20
    assert scrub_patch(text, Scrubber()).count("\n") == text.count("\n")


def test_every_line_stays_and_a_mark_is_counted_once():
    clean, removed = blank('+password = "x"\n+password = "<redacted>"\n', "#", diff=True)
    assert clean == f'+password = "{MARK}"\n+password = "{MARK}"\n' and removed == 1
