"""Processes of tests: scripts in forked interpreters that have torch already, and ranks of a job.

Importing torch takes seconds. A fork server imports it once for each test worker; a script that a
test runs is then a fork of it, with arguments, environment, output and exit code of its own. What
depends on how an interpreter starts (``PYTHONHASHSEED``, ``-X``, ``LD_PRELOAD``) gets a fresh one.
"""

import contextlib
import faulthandler
import json
import multiprocessing
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from helpers.paths import ROOT, SCRIPTS

LAUNCHER_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    *("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
_READ_AT_START = (
    *("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "CUDA_", "TORCH_"),
    *("TORCHDYNAMO_", "TORCHINDUCTOR_", "TRITON_"),
)

forking = multiprocessing.get_context("forkserver")
# Imported after a process group, torch.distributed.nn would keep it after its destruction.
_SHARDING = ("torch.distributed.nn", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")
# Every optimizer imports Dynamo.
forking.set_forkserver_preload(["torch", "numpy", "torch._dynamo", *_SHARDING])


def clean_environment(**more: str) -> dict[str, str]:
    """Return this environment without the variables of a launcher; it imports this checkout.

    Where native code ends a process of it, Python writes the stacks of all threads.
    """
    kept = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", **more}


def free_port() -> int:
    """Return a TCP port of this machine that nothing listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def in_child(work: Callable[[], Any]) -> Any:
    """Return what ``work()`` returns in a forked child; an error there is an error here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                answer = True, work()
            except BaseException:
                answer = False, traceback.format_exc()
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    assert data, "the child ended without an answer"
    is_done, found = pickle.loads(data)
    assert is_done, found
    return found


def alone(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """Return what a module-level function returns in a process that has torch and nothing of ours.

    An error there is an error here.
    """
    reader, writer = forking.Pipe(duplex=False)
    order = pickle.dumps((clean_environment(**environment), pickle.dumps((function, arguments))))
    process = forking.Process(target=_answer, args=(writer, order))
    process.start()
    writer.close()
    data = reader.recv_bytes() if reader.poll(280) else b""
    process.kill()
    process.join()
    assert data, "the process did not answer"
    is_done, found = pickle.loads(data)
    assert is_done, found
    return found


def _answer(writer: Any, order: bytes) -> None:
    variables, call = pickle.loads(order)
    os.environ.clear()
    os.environ.update(variables)
    try:
        function, arguments = pickle.loads(call)
        answer = True, function(*arguments)
    except BaseException:
        answer = False, traceback.format_exc()
    writer.send_bytes(pickle.dumps(answer))


class Finished(NamedTuple):
    """The exit code and the output of a process."""

    returncode: int
    stdout: str
    stderr: str


class Script:
    """A running Python script: a fork that has torch, or a fresh interpreter where that matters."""

    def __init__(self, path: str | Path, *arguments: Any, fresh: bool = False, **environment: str):
        self.command = [str(path), *map(str, arguments)]
        self._paths = [tempfile.mkstemp()[1] for _ in range(2)]
        fresh = fresh or any(name.startswith(_READ_AT_START) for name in environment)
        whole = clean_environment(**environment)
        self._popen: subprocess.Popen[str] | None = None
        if fresh:
            command = [sys.executable, *self.command]
            with open(self._paths[0], "w") as out, open(self._paths[1], "w") as err:
                env = {**whole, "PYTHONFAULTHANDLER": "1"}
                self._popen = subprocess.Popen(command, stdout=out, stderr=err, env=env)
        else:
            with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
                json.dump([self.command, whole, os.getcwd()], file)
            self._process = forking.Process(target=_main, args=(file.name, *self._paths))
            self._process.start()

    @property
    def pid(self) -> int:
        """The process id."""
        found = self._popen.pid if self._popen is not None else self._process.pid
        assert found is not None
        return found

    def kill(self) -> None:
        """End the process at once, if it still runs."""
        (self._popen or self._process).kill()

    def wait(self, timeout: float = 120) -> Finished:
        """Wait for the end.

        After ``timeout`` seconds a TimeoutError has the output and the stack of every thread, which
        faulthandler writes on SIGABRT, and no process is left.
        """
        try:
            code = self._join(timeout)
            if code is None:
                os.kill(self.pid, signal.SIGABRT)
                self._join(10)
        finally:
            self.kill()
        out, err = self._read()
        if code is None:
            raise TimeoutError(f"{self.command} ran for {timeout} s\n{out}\n{err}")
        return Finished(code, out, err)

    def _join(self, timeout: float) -> int | None:
        """Return the exit code; None if the process still runs after ``timeout`` seconds."""
        if self._popen is None:
            self._process.join(timeout)
            return self._process.exitcode
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)
        return self._popen.returncode

    def _read(self) -> tuple[str, str]:
        if self._popen is not None:
            self._popen.wait()
        else:
            self._process.join()
        out, err = (Path(path).read_text(errors="replace") for path in self._paths)
        for path in self._paths:
            os.unlink(path)
        return out, err


def _main(order: str, out: str, err: str) -> None:
    """Run a script as ``python script arguments`` would, in a fork of the server."""
    command, environment, folder = json.loads(Path(order).read_text())
    os.unlink(order)
    for path, number in ((out, 1), (err, 2)):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    faulthandler.enable(2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    multiprocessing.set_start_method(None, force=True)
    extra = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = [os.path.dirname(command[0]), *extra]
    sys.argv = command
    try:
        runpy.run_path(command[0], run_name="__main__")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def run_python(*arguments: str | Path, timeout: float = 120, **environment: str) -> str:
    """Return the standard output of ``python arguments``, which has to succeed."""
    if Path(arguments[0]).suffix == ".py":
        done = Script(*arguments, **environment).wait(timeout)
    else:
        whole = clean_environment(**environment)
        command = [sys.executable, *map(str, arguments)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=whole)
        done = Finished(found.returncode, found.stdout, found.stderr)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_script(name: str, *arguments: str | Path, timeout: float = 120, **environment: str) -> Any:
    """Return what a program of ``tests/scripts`` prints last, one line of JSON."""
    printed = run_python(SCRIPTS / name, *arguments, timeout=timeout, **environment)
    return json.loads(printed.splitlines()[-1])


def run_job(
    name: str, world_size: int, *arguments: Any, timeout: float = 120, **environment: str
) -> list[Finished]:
    """Run a program of ``tests/scripts`` as the ranks of a job, which all have to succeed.

    The ranks have the environment that torchrun gives, without its process.
    """
    job = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
        "TORCHELASTIC_RUN_ID": "test",
        **environment,
    }
    ranks = [
        Script(SCRIPTS / name, *arguments, **job, RANK=str(rank), LOCAL_RANK=str(rank))
        for rank in range(world_size)
    ]
    try:
        ended = [rank.wait(timeout) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, done in enumerate(ended):
        assert done.returncode == 0, f"{name}, rank {rank}\n{done.stdout}\n{done.stderr}"
    return ended


def run_ranks(name: str, world_size: int, *arguments: Any, **options: Any) -> list[Any]:
    """Return what each rank of :func:`run_job` printed last, one line of JSON."""
    ended = run_job(name, world_size, *arguments, **options)
    return [json.loads(done.stdout.splitlines()[-1]) for done in ended]
