"""The command: help, exit codes, errors, JSON, tables."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest
import torch
from helpers.paths import ROOT

import fastseed
from fastseed import cli
from fastseed.cli import COMMANDS, exit_codes, main, output


def subcommand(monkeypatch, run, name="planted"):
    """Add a subcommand with ``--json``."""

    def add(parser):
        parser.add_argument("rest", nargs="*")

    module = SimpleNamespace(ABOUT="", add=add, run=run)
    monkeypatch.setitem(sys.modules, f"fastseed.cli.{name}", module)
    monkeypatch.setattr(cli, "COMMANDS", {name: "help"})


def raising(error):
    def run(args):
        raise error

    return run


def test_help_names_every_subcommand_and_every_exit_code(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"^    {name}\b", shown, re.M), name
    for code in exit_codes.MEANINGS:
        assert re.search(rf"^ +{code}  \w", shown, re.M), code


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_help_with_a_description(name, capsys):
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"usage: fastseed {name}" in shown and len(shown.splitlines()) > 4


HELP = """
import contextlib, io, sys
from fastseed.cli import COMMANDS, main
with contextlib.redirect_stdout(io.StringIO()):
    main(["show", "--help"])
    print([n for n in COMMANDS if f"fastseed.cli.{n}" in sys.modules], file=sys.stderr)
    for command in ([], *([n] for n in COMMANDS)):
        main([*command, "--help"])
    print({"torch", "numpy"} & set(sys.modules), file=sys.stderr)
"""


def test_help_imports_neither_torch_nor_other_subcommands():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60)
    assert done.stderr == "['show']\nset()\n"


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fastseed {fastseed.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["show"],
        ["diff", "x"],
        ["--versio"],
        ["diff", "x", "y", "--js"],
        ["check", "-z"],
    ],
)
def test_wrong_usage_ends_with_2_and_without_a_traceback(arguments, capsys):
    assert main(arguments) == exit_codes.USAGE
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("usage: fastseed")
    assert re.search(r"^fastseed[ a-z]*: ", shown.err, re.MULTILINE)
    assert "Traceback" not in shown.err


def test_an_unknown_option_shows_the_usage_of_its_subcommand(capsys):
    assert main(["verify", "--jobs", "train.py"]) == exit_codes.USAGE
    assert capsys.readouterr().err.startswith("usage: fastseed verify")


@pytest.mark.parametrize(
    "error, code",
    [
        (ValueError("fastseed.f: n must be 1, got 2"), exit_codes.USAGE),
        (TypeError("fastseed.f: n must be an integer, got 'x'"), exit_codes.USAGE),
        (FileNotFoundError(2, "No such file or directory", "gone.json"), exit_codes.USAGE),
        (RuntimeError("fastseed.f: call fastseed.init(...) first"), exit_codes.UNAVAILABLE),
        (ImportError("fastseed verify: needs matplotlib"), exit_codes.UNAVAILABLE),
        (FileExistsError("fastseed.f: path must be new"), exit_codes.USAGE),
        (TimeoutError("fastseed.f: rank 1 is late"), exit_codes.UNAVAILABLE),
        (OSError(28, "No space left on device"), exit_codes.UNAVAILABLE),
        (MemoryError(), exit_codes.UNAVAILABLE),
        (exit_codes.Signalled(15), 143),
        (exit_codes.Exit("found", exit_codes.FOUND), exit_codes.FOUND),
        (KeyboardInterrupt(), exit_codes.INTERRUPTED),
    ],
)
def test_expected_errors_have_a_code_and_no_traceback(monkeypatch, capsys, error, code):
    subcommand(monkeypatch, raising(error))
    assert main(["planted"]) == code
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err and "Traceback" not in shown.err


@pytest.mark.parametrize("error", [ValueError("some bug"), ZeroDivisionError(), ImportError("x")])
def test_a_bug_is_no_finding_and_shows_its_traceback(monkeypatch, capsys, error):
    subcommand(monkeypatch, raising(error))
    assert main(["planted"]) == exit_codes.BUG not in (exit_codes.OK, exit_codes.FOUND)
    assert "Traceback" in capsys.readouterr().err


def test_errors_are_json_too(monkeypatch, capsys):
    subcommand(monkeypatch, raising(ValueError("fastseed.f: n must be 1, got '\x1b'")))
    assert main(["planted", "--json"]) == exit_codes.USAGE
    error = json.loads(capsys.readouterr().out)["error"]
    assert error == {"exit_code": 2, "message": "fastseed planted: n must be 1, got '\x1b'"}
    assert main(["planted", "--nonsense", "--json"]) == exit_codes.USAGE
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2
    # Behind `--` the option is another program's.
    assert main(["planted", "--", "--json"]) == exit_codes.USAGE
    assert capsys.readouterr().out == ""


def test_the_exit_code_is_what_a_subcommand_returns(monkeypatch):
    subcommand(monkeypatch, lambda args: exit_codes.FOUND)
    assert main(["planted"]) == exit_codes.FOUND


@pytest.mark.costly("a fresh process with torch")
def test_the_module_is_the_command(tmp_path):
    command = [sys.executable, "-m", "fastseed", "show", str(tmp_path / "gone")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == exit_codes.USAGE and done.stdout == ""
    assert done.stderr.startswith("fastseed show: X must exist, got")


def test_a_broken_pipe_is_no_error(tmp_path):
    code = (
        "import sys, time, fastseed.cli as cli; from fastseed.cli import output, exit_codes\n"
        "def run(): [output.say('x' * 1000) for _ in range(1000)]; return 0\n"
        "cli._summary = run; code = cli.main([]); print(code, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == "141\n"
    process.stderr.close()
    assert process.wait(60) == 0


def test_the_bare_command_says_what_there_is(capsys, monkeypatch):
    monkeypatch.setenv("FASTSEED_SIMD", "avx2")
    assert main([]) == exit_codes.OK
    shown = capsys.readouterr().out
    assert shown.startswith(f"fastseed {fastseed.__version__}, torch {torch.__version__}\nbackend ")
    assert "devices    cpu" in shown and "\nFASTSEED_SIMD=avx2\n" in shown
    assert all(f"fastseed {name} " in shown for name in COMMANDS) and len(COMMANDS) == 5
    assert main(["--json"]) == exit_codes.OK
    assert json.loads(capsys.readouterr().out)["variables"]["FASTSEED_SIMD"] == "avx2"


@pytest.mark.costly("a fresh process with torch")
def test_a_full_disk_is_no_bug():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "fastseed"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == exit_codes.UNAVAILABLE
    assert "fastseed: No space left on device\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_control_characters_are_escaped(capsys):
    output.say("a\x1b[31mb\x07\x9b\u202e\ud800")
    assert capsys.readouterr().out == "a\\x1b[31mb\\x07\\x9b\\u202e\\ud800\n"
    output.say("\0\b\v\x1f\x7f\x80\u061c\u200e\u200f\u2028\u202a\u2066\u2069\udfff")
    assert capsys.readouterr().out[:-1].isprintable()


def test_a_piped_table_is_plain_aligned_and_whole(capsys):
    output.table(("what", "value"), [("a\nb", "x" * 300), ("[bold]c", "\x1b")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("what     value")
    assert lines[2] == "a\\nb     " + "x" * 300 and lines[3] == "[bold]c  \\x1b"


def test_a_table_without_rows_is_its_heading(capsys):
    output.table(("a", "b"), [])
    assert capsys.readouterr().out == "a  b\n-  -\n"


@pytest.mark.parametrize("has_rich", [True, False])
def test_a_table_on_a_terminal(has_rich):
    """Wrapped to the width of the terminal and coloured by rich; plain, and whole, without it."""
    hide = "" if has_rich else "sys.modules['rich'] = None;"
    rows = [("a" * 30, "wrong", "b" * 90), ("c\x1b[31m", "fine", "[bold]d")]
    code = (
        f"import sys; {hide} from fastseed.cli import output; output.table(('x', '', 'y'), {rows})"
    )
    main, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        environment.pop(name, None)
    subprocess.run(
        [sys.executable, "-c", code], stdout=end, env=environment, check=True, timeout=60
    )
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # at its end
        while part := os.read(main, 4096):
            shown += part
    os.close(main)
    colours = re.findall(r"\x1b\[[0-9;]*m", shown.decode())
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert bool(colours) is has_rich and "\x1b" not in text and "c\\x1b[31m" in text
    assert "[bold]d" in text and (max(map(len, text.splitlines())) <= 100) is has_rich
    assert text.count("b") >= 90


def test_json_is_ascii_and_strict(capsys, monkeypatch):
    monkeypatch.setattr(output, "json_only", True)
    output.emit({"é": "\ud800"})
    shown = capsys.readouterr().out
    assert shown.isascii() and json.loads(shown) == {"é": "\ud800"}
    output.emit([float("nan"), 2**64])
    assert json.loads(capsys.readouterr().out) == ["nan", f"{2**64:032x}"]
