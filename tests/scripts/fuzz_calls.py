"""Hostile calls of every public function, class, method and operator.

``fuzz_calls.py SEED CALLS [FIRST]`` makes calls FIRST to FIRST + CALLS - 1 of the sequence of a
seed; each is a function of (seed, number) alone, so that one can be repeated by itself. Calls run
in child processes, so that one that ends its process, or hangs, does not end the others. Writes a
report as JSON: ``crashes``, ``hangs``, ``internal`` errors, ``changed`` state after a refused call,
``silent`` changes of the job or its generators by a call that has nothing to do with them,
``unclear`` errors: the right type, but not in fastseed's form, and the ``slowest`` calls with their
seconds. Each child says on stderr how far it came. Usage by hand:
``python tests/scripts/fuzz_calls.py 1 50000``.
"""

import contextlib
import faulthandler
import importlib
import inspect
import json
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
import fuzz_values as values

import fastseed

LIMIT_S = 60  # of one call, which may be the first one that needs torch._dynamo
CHUNK = 5000  # calls of one child
MEMORY = 6 << 30
PACKAGES = (
    *("checkpoint", "data", "debug", "determinism", "distributed", "integrations"),
    *("elastic", "nn", "nn.functional", "random", "rollouts", "sampling"),
)
LEFT_OUT = {
    "enforce_reproducibility": "starts the process again",
    "determinism.apply_config": "starts the process again",
    "data.worker_init_fn": "called by torch with a number",
    "debug.check": "seconds a call; it takes no tensors",
    "data.Seekable": "an abstract class",
    "ReseedError": "made by the library",
}


KINDS = ("hangs", "internal", "unclear", "changed", "silent")
CHANGE = ("init", "reseed", "load_state_dict", "deterministic", "register_generator")
"""What changes the job, its generators or switches where it is let through."""

SLOWEST = 5


class HangError(BaseException):
    """A call took longer than LIMIT_S."""


def public_names():
    """(path, object) of every public function and class."""
    for name in fastseed.__all__:
        yield name, getattr(fastseed, name)
    for package in PACKAGES:
        module = importlib.import_module(f"fastseed.{package}")
        for name in module.__all__:
            yield f"{package}.{name}", getattr(module, name)


def methods(path, kind):
    """(path.method, a function of an instance and arguments) of a class."""
    for name in dir(kind):
        found = inspect.getattr_static(kind, name)
        is_library = str(getattr(found, "__module__", "")).startswith("fastseed")
        if callable(found) and is_library and (not name.startswith("_") or name == "__getitem__"):
            yield f"{path}.{name}", found
    if issubclass(kind, torch.nn.Module):
        yield f"{path}.forward", kind.forward


def targets():
    """{path: (function, maker of the instance or None, parameters)}"""
    found = {}
    makers = values.instances()
    for path, thing in public_names():
        if path in LEFT_OUT or not callable(thing):
            continue
        found[path] = (thing, None)
        if isinstance(thing, type) and path in makers:
            for name, method in methods(path, thing):
                found[name] = (method, makers[path])
    for path, thing in operators():
        found[f"ops.{path}"] = (thing, None)
    return {
        path: (*pair, parameters(path, *pair))
        for path, pair in found.items()
        if path not in LEFT_OUT
    }


def operators():
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        name = qualified.removeprefix("fastseed::")
        if name != qualified and "simd" not in name and name != "loop_table":
            yield name, getattr(torch.ops.fastseed, name).default


def parameters(path, function, make):
    """[(name, kind)]: what ``call`` passes."""
    if path.startswith("ops."):
        return [(a.name, str(a.type)) for a in function._schema.arguments]
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    return [(p.name, p) for p in (given[1:] if make else given)]


# ---------------------------------------------------------------- one call

BY_TYPE = {
    "int": values.one_of(*(n for n in values.NUMBERS if isinstance(n, int) and abs(n) < 2**63)),
    "float": values.one_of(0.0, 1.0, -1.0, float("nan"), 1e300),
    "bool": values.one_of(False, True),
    "str": values.one_of("avx2", ""),
    "List[int]": values.one_of([], [2], [3, 2], [0], [-1], [2**62, 4]),
}


def of_operator(rng, name, kind):
    if kind in BY_TYPE:
        return BY_TYPE[kind](rng)
    if kind == "List[Tensor]":
        some = [values.tensor(rng) for _ in range(rng.randint(0, 3))]
        return f"{[n for n, _ in some]}", [v for _, v in some]
    if kind.startswith("Optional") and rng.random() < 0.4:
        return "None", None
    return values.GOOD.get(name, values.tensor)(rng)


def arguments(rng, path, wanted):
    """(descriptions, positional, keywords): good ones but for one or two."""
    if path.startswith("ops."):
        given = [of_operator(rng, name, kind) for name, kind in wanted]
        return [text for text, _ in given], [value for _, value in given], {}
    attacked = {rng.randrange(len(wanted)) for _ in range(rng.choice((1, 1, 2)))} if wanted else ()
    texts, positional, keywords = [], [], {}
    for i, (name, parameter) in enumerate(wanted):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if parameter.kind == parameter.VAR_POSITIONAL and rng.random() < 0.5 and not keywords:
                text, value = values.hostile(rng)
                texts, positional = [*texts, text], [*positional, value]
            continue
        is_optional = parameter.default is not parameter.empty
        if i in attacked:
            text, value = values.hostile(rng)
        elif is_optional and rng.random() < 0.8:
            continue
        else:
            text, value = values.GOOD.get(name, values.hostile)(rng)
        if parameter.kind == parameter.KEYWORD_ONLY or is_optional or keywords:
            keywords[name] = value
            texts.append(f"{name}={text}")
        else:
            positional.append(value)
            texts.append(text)
    return texts, positional, keywords


def use(found):
    """Enter and leave a context manager."""
    if hasattr(type(found), "__enter__") and not isinstance(found, fastseed.debug.Watch):
        with found:
            pass


def memory_of(value, found, depth=0):
    """Append the bytes of the tensors within some arguments to ``found``."""
    if depth > 2:
        return
    if isinstance(value, torch.Tensor):
        with contextlib.suppress(Exception):
            storage = value.untyped_storage()
            if value.layout == torch.strided and not value.is_meta and storage.data_ptr():
                whole = torch.empty(0, dtype=torch.uint8).set_(storage)
                found.append(whole.numpy().tobytes())
    elif isinstance(value, fastseed.random.StreamBank):
        memory_of([value.keys, value.positions], found, depth)
    elif isinstance(value, (list, tuple)):
        for one in value[:4]:
            memory_of(one, found, depth + 1)
    elif isinstance(value, dict):
        memory_of(list(value.values()), found, depth)


def state(given):
    """Everything that a refused call must leave as it is."""
    found = []
    memory_of(given, found)
    return [*found, *job_state()]


def job_state():
    """What is of the job and not of a call: also most calls that are let through leave it."""
    job = fastseed.state_dict()
    job = pickle.dumps({k: v for k, v in job.items() if not isinstance(v, torch.Tensor)})
    numpy_state = np.random.get_state()
    generators = random.getstate(), numpy_state[1].tobytes(), numpy_state[2:], torch.get_rng_state()
    switches = torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled(), os.getcwd()
    return [job, *generators[:3], generators[3].numpy().tobytes(), *switches]


def begin():
    fastseed.init(42, rank=0, world_size=1)
    fastseed.reseed(0)


def is_clear(path, error):
    """Return whether a refusal names what it refuses, or is Python's about a signature."""
    text = str(error)
    if isinstance(error, (OSError, MemoryError, fastseed.ReseedError)) or "alloc" in text:
        return True
    if path.startswith("ops."):
        return "fastseed." in text or not isinstance(error, (TypeError, ValueError))
    if path.endswith("__getitem__") or path == "debug.seed_reach":
        return True  # what the dataset, or the function to try, raises
    own = "positional argument", "keyword argument", "takes no arguments", "unhashable type"
    own += "batch_size should be", "mutually exclusive with"  # torch's, of its DataLoader
    return text.startswith("fastseed") or any(part in text for part in own)


EXPECTED = TypeError, ValueError, RuntimeError, NotImplementedError, OSError, MemoryError


def call(seed, number, everything, report):
    """Make one call; append to ``report`` what is wrong with it."""
    rng = random.Random(f"{seed} {number}")
    path = rng.choice(list(everything))
    function, make, wanted = everything[path]
    texts, positional, keywords = arguments(rng, path, wanted)
    text = f"{number} {path}({', '.join(texts)})"[:400]
    print(text, file=report["log"], flush=True)
    given = [*([make()] if make else []), *positional]
    before, job = state([given, keywords]), job_state()
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    began = time.monotonic()
    try:
        with torch.no_grad() if rng.random() < 0.1 else contextlib.nullcontext():
            use(function(*given, **keywords))
        refused = False
    except HangError:
        return report["hangs"].append(text)
    except EXPECTED as error:
        refused = True
        if isinstance(error, (RecursionError, UnicodeError)):
            report["internal"].append(f"{text}: {error!r}"[:700])
        elif not is_clear(path, error):
            report["unclear"].append(f"{text}: {error!r}"[:700])
    except Exception as error:
        refused = True
        if not (isinstance(error, IndexError) and path.endswith("__getitem__")):
            report["internal"].append(f"{text}: {error!r}"[:700])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        timed = *report["slowest"], [round(time.monotonic() - began, 2), text]
        report["slowest"] = sorted(timed, reverse=True)[:SLOWEST]
    report["refused"] += refused
    report["paths"][path] += 1
    if not refused and path not in CHANGE and job_state() != job:
        report["silent"].append(text)
    if refused:
        after = state([given, keywords])
        if before != after:
            where = [
                i
                for i, pair in enumerate(zip(before, after, strict=False))
                if len(set(map(repr, pair))) > 1
            ]
            report["changed"].append(f"{text}: parts {where} of {len(before)}")


# ---------------------------------------------------------------- many calls


def on_alarm(*_):
    raise HangError


def run_part(seed, first, last, folder):
    """Make some calls in this process, and write the report."""
    os.chdir(tempfile.mkdtemp(dir=folder))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGALRM, on_alarm)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    report = {**{kind: [] for kind in KINDS}, "refused": 0, "slowest": []}
    report.update(paths=Counter(), log=(folder / "log").open("w"))
    everything = targets()
    for number in range(first, last):
        faulthandler.dump_traceback_later(2 * LIMIT_S, exit=True)  # for a hang in native code
        begin()
        known = sum(len(report[kind]) for kind in KINDS)
        call(seed, number, everything, report)
        if number % 100 == 99 or number + 1 == last or known < sum(len(report[k]) for k in KINDS):
            content = {key: value for key, value in report.items() if key != "log"}
            (folder / "report").write_text(json.dumps({**content, "done": number + 1}))
    faulthandler.cancel_dump_traceback_later()


def run(seed, calls, first=0):
    """Make calls in child processes; return the report of all."""
    whole = {"seed": seed, "calls": calls, "crashes": [], **{kind: [] for kind in KINDS}}
    whole.update(refused=0, slowest=[], paths=Counter())
    if calls > 1000:  # once, not in each child
        importlib.import_module("torch._dynamo")
    at, end = first, first + calls
    while at < end:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run_part(seed, at, min(at + CHUNK, end), folder)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            status = os.waitpid(child, 0)[1]
            part = {"done": at}
            if (folder / "report").exists():
                part = json.loads((folder / "report").read_text())
            at = part.pop("done")
            if status:
                last = (folder / "log").read_text().splitlines()[-1]
                whole["crashes"].append(f"{last}: ended with status {status}")
                at = int(last.split()[0]) + 1
            for key, value in part.items():
                whole[key] += Counter(value) if key == "paths" else value
            whole["slowest"] = sorted(whole["slowest"], reverse=True)[:SLOWEST]
            print(f"fuzz_calls.py: {at - first} of {calls} calls", file=sys.stderr, flush=True)
    return whole


if __name__ == "__main__":
    began = time.monotonic()
    found = run(*map(int, sys.argv[1:]))
    found["never_called"] = sorted(set(targets()) - set(found["paths"]))
    found["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(found))
