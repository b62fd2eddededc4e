"""The stages of a run: each a group of processes with a limit, whose ends are written down."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import table
from .programs import ON_GPU, ROOT, SANITIZED, some_rows

KEPT = 20_000  # characters of a process's output in log.txt
PROBE = """
import json, sys, torch, fastseed
info = fastseed.build_info()
where = [torch.cuda.get_device_name(0)] if torch.cuda.is_available() else ["no device"]
print(json.dumps([*where, info["native"], info["generators"], info["cuda"], info["torch"]]))
sys.exit(len(sys.argv) > 1 and (info["cuda"] != "loaded" or where == ["no device"]))
"""
TESTS = (
    "tests/backend", "tests/cuda", "tests/random", "tests/sampling", "tests/data/test_order.py",
    "tests/digest/test_digest.py", "tests/debug/test_watch.py", "tests/nn/test_perturb.py",
    "tests/generators/test_accelerator.py", "tests/determinism/test_deterministic.py",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    name: str
    status: str
    """``"ok"``, ``"failed (CODE)"`` or ``"timed out"``."""
    last_line: str


class Run:
    """What a run has found so far, in a folder."""

    def __init__(self, out: Path, seconds: float, programs: Path) -> None:
        self._out, self._programs = out, programs
        self._begun, self._seconds = time.monotonic(), seconds
        self.rows = out / "rows.jsonl"
        self.ended: list[Ended] = []
        out.mkdir(parents=True, exist_ok=True)
        for name in ("summary.txt", "log.txt", "rows.jsonl"):
            (out / name).write_text("")

    def left(self, limit: float = 1e9, reserve: float = 0.0) -> float:
        """Return the seconds that a stage may take: the limit, or what is left but a reserve."""
        left = self._seconds - (time.monotonic() - self._begun) - reserve
        return max(0.0, min(limit, left))

    def write(self, text: str) -> None:
        """Print a text and append it to the summary."""
        print(text, flush=True)
        with (self._out / "summary.txt").open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def _note(self, ended: Ended, output: str) -> None:
        self.ended.append(ended)
        with (self._out / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"==== {ended.name}: {ended.status}\n{output[-KEPT:]}\n")
        at = time.monotonic() - self._begun
        self.write(f"[{at:5.0f} s] {ended.name}: {ended.status}: {ended.last_line[:120]}")

    def _start(self, *command: object, **more: str) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        env = {
            **os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **more,
        }  # fmt: skip
        words = [*map(str, command)]
        if shutil.which(words[0]) is None:
            words = ["sh", "-c", f"echo there is no {Path(words[0]).name}; exit 127"]
        return subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip

    def _finish(self, running: dict[str, subprocess.Popen[str]], seconds: float) -> None:
        """Wait for all processes for so many seconds together."""
        end = time.monotonic() + seconds
        for name, process in running.items():
            try:
                output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
                code = process.returncode
                status = "ok" if code == 0 else f"failed ({code})"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # its own processes too
                output, status = process.communicate()[0], "timed out"
            lines = [line for line in output.splitlines() if line.strip()] or [""]
            # A program says what failed before it says where.
            what = next((line for line in lines if line.startswith("FAILED: ")), lines[-1])
            self._note(Ended(name, status, what), output)

    # ------------------------------------------------------------ what was found

    def _lines(self) -> list[dict[str, Any]]:
        """Return the rows; a last one that a killed process left half written is passed over."""
        found = []
        for line in self.rows.read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return [line for line in found if "case" in line]

    def failed(self) -> bool:
        """Return whether a stage did not pass, or an answer was wrong, or none right."""
        rows = self._lines()
        is_bad = any(map(table.is_bad, rows)) or any(e.status != "ok" for e in self.ended)
        return is_bad or not any(row["status"] == "ok" for row in rows)

    def summary(self, is_rehearsal: bool = False) -> str:
        """Return the stages that did not pass, and the table of the headline cases."""
        not_ok = [e for e in self.ended if e.status != "ok"]
        return "\n".join([
            "", f"stages: {len(self.ended) - len(not_ok)} ok, {len(not_ok)} not",
            *(f"  {e.name}: {e.status}: {e.last_line[:70]}" for e in not_ok[:12]),
            table.text(self._lines(), headline_only=True)
            + ("; a rehearsal on the CPU: no figure means anything" if is_rehearsal else ""),
        ])  # fmt: skip

    # ------------------------------------------------------------ the stages, in their order

    def environment(self, rehearse: bool = False) -> None:
        """Look at the card and the compiler; use the libraries that were brought, or build them."""
        if rehearse:
            self._finish({"libraries": self._start(sys.executable, "-c", PROBE)}, self.left(60))
            return
        tools = {name: self._start(*command) for name, command in (
            ("nvidia-smi", ("nvidia-smi",)), ("nvcc", ("nvcc", "--version")),
        )}  # fmt: skip
        self._finish(tools, self.left(30))
        if not self._has_cuda():
            for brought in (self._programs / "lib" / "fastseed").glob("*.so"):
                shutil.copy2(brought, ROOT / "fastseed")
        if not self._has_cuda():
            build = self._start(
                sys.executable, "setup.py", "-q", "build_ext", "--inplace", FORCE_CUDA="1",
                MAX_JOBS=str(os.cpu_count()),
            )  # fmt: skip
            self._finish({"build of the libraries": build}, self.left(180))
        libraries = self._start(sys.executable, "-c", PROBE, "cuda")
        self._finish({"libraries": libraries}, self.left(60))

    def _has_cuda(self) -> bool:
        probe = "import sys, fastseed; sys.exit(fastseed.build_info()['cuda'] != 'loaded')"
        process = self._start(sys.executable, "-W", "ignore", "-c", probe)
        try:
            return process.wait(60) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            return False

    def native_programs(self) -> None:
        """Run all programs at once: known answers, a million checks."""
        if not all((self._programs / name).exists() for name in ON_GPU):
            command = "import torch; print('%d.%d' % torch.cuda.get_device_capability())"
            done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
            architecture = done.stdout.strip() or "9.0"
            jobs = os.cpu_count() or 1
            self._finish({"build of the programs": self._start(
                sys.executable, "-m", "benchmarks.gpu.programs", self._programs, architecture, jobs
            )}, self.left(120, reserve=60))  # fmt: skip
        running = {
            f"program {name}": self._start(self._programs / name, *program.paths)
            for name, program in ON_GPU.items()
        }
        self._finish(running, self.left(90))

    def tests(self, title: str, tier: str, chosen: str, limit: float) -> None:
        """Run tests on the device; the workers of pytest-xdist where it is there."""
        seconds = self.left(limit, reserve=5)
        if seconds < 10:
            self._note(Ended(title, "no time left", ""), "")
            return
        workers = ["-n", "4"] if importlib.util.find_spec("xdist") else []
        files = [file for file in TESTS if (ROOT / file).exists()]
        process = self._start(
            sys.executable, "-m", "pytest", *files, "-q", "-p", "no:cacheprovider", *workers,
            "--tier", tier, "-m", "cuda or needs_cuda", "-k", chosen, "--maxfail", "60",
            "--tb=line", f"--junitxml={self._out / title}.xml",
            FAIL_WITHOUT_CUDA="1", FASTSEED_BACKEND="native",
        )  # fmt: skip
        self._finish({title: process}, seconds)

    def sanitizer(self) -> None:
        """Run compute-sanitizer on a few rows of each kind, four at a time."""
        end = time.monotonic() + self.left(90, reserve=60)
        waiting = list(SANITIZED)
        with tempfile.TemporaryDirectory() as folder:
            while waiting:
                some, waiting = waiting[:4], waiting[4:]
                running = {}
                for tool, name, rows in some:
                    files = [some_rows(path, rows, Path(folder)) for path in ON_GPU[name].paths]
                    running[f"{tool} {name}"] = self._start(
                        "compute-sanitizer", "--tool", tool, "--error-exitcode", "9",
                        self._programs / name, *files,
                    )  # fmt: skip
                self._finish(running, end - time.monotonic())

    def times(self, rehearse: bool = False) -> None:
        """Compare every kernel's bits with the CPU's, in a graph first, then time all cases."""
        if not rehearse:
            graphs = self._start(sys.executable, "-m", "benchmarks.gpu.graphs", "--out", self.rows)
            self._finish({"first launches in a graph": graphs}, self.left(60, reserve=60))
        seconds = self.left(260, reserve=20)
        how = ["--rehearse"] if rehearse else ["--device", "cuda"]
        process = self._start(
            sys.executable, "-m", "benchmarks", "--all", "--out", self.rows, "--seconds", seconds,
            *how,
        )  # fmt: skip
        self._finish({"bits and times": process}, seconds + 15)
