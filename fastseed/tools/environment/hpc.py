"""What a cluster and a distribution put under a job: modules, scheduler, system packages."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .commands import Runner
from .machine import read

_SCHEDULERS = {
    "slurm": ("SLURM_", "SBATCH_", "SRUN_"),
    "pbs": ("PBS_",),
    "lsf": ("LSB_", "LSF_"),
    "sge": ("SGE_", "NSLOTS"),
    "flux": ("FLUX_",),
    "cobalt": ("COBALT_",),
    "kubernetes": ("KUBERNETES_SERVICE_HOST",),
    "torchelastic": ("TORCHELASTIC_",),
    "openmpi": ("OMPI_COMM_WORLD_",),
    "pmi": ("PMI_", "PMIX_"),
}


def scheduler(variables: Mapping[str, str]) -> dict[str, Any]:
    """Which launchers and schedulers there are, and their variables among those that are kept."""
    found: dict[str, Any] = {}
    for name, prefixes in _SCHEDULERS.items():
        own = {k: v for k, v in sorted(variables.items()) if k.startswith(prefixes)}
        if own:
            found[name] = own
    return found


def modules(runner: Runner) -> dict[str, Any]:
    """`module list`, of Lmod or Environment Modules; the shell's own record without either."""
    environ = runner.environ
    recorded = [name for name in environ.get("LOADEDMODULES", "").split(":") if name]
    listed: list[str] | None = None
    commands = [
        (environ.get("LMOD_CMD"), ("bash", "-t", "list")),
        (environ.get("MODULES_CMD"), ("bash", "list", "-t")),
        ("modulecmd", ("bash", "list", "-t")),
    ]
    for program, arguments in commands:
        if program and (os.path.isabs(program) or environ.get("MODULESHOME")):
            answer = runner.run(program, *arguments, errors=True)  # both print it as an error
            if answer.out is not None:
                lines = (line.strip() for line in answer.text.splitlines())
                listed = [n for n in lines if re.fullmatch(r"[\w.+~@=/-]+(\([^)]*\))?", n)]
                break
    return {"loaded": recorded if listed is None else listed, "recorded": recorded}


def conda(environ: Mapping[str, str]) -> dict[str, Any]:
    """The conda packages of this interpreter's environment, from its own records: no conda runs."""
    for prefix in dict.fromkeys([sys.prefix, environ.get("CONDA_PREFIX", "")]):
        folder = Path(prefix) / "conda-meta"
        if prefix and folder.is_dir():
            packages = dict(filter(None, map(_conda_package, sorted(folder.glob("*.json")))))
            return {"prefix": prefix, "packages": packages}
    return {}


def _conda_package(file: Path) -> tuple[str, str] | None:
    try:
        about = json.loads(read(file, limit=1 << 25))
        return str(
            about["name"]
        ), f"{about['version']} {about.get('build', '')} {about.get('channel', '')}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def system_packages(runner: Runner, root: Path = Path("/")) -> dict[str, str]:
    """The distribution's packages: dpkg's record, or what `rpm` says."""
    found = {}
    status = root / "var/lib/dpkg/status"
    if status.is_file():
        for paragraph in read(status, limit=1 << 26).split("\n\n"):
            fields = dict(
                re.findall(r"^(Package|Version|Architecture|Status): (.*)$", paragraph, re.M)
            )
            if fields.get("Status", "").endswith(" installed") and "Version" in fields:
                name = f"{fields.get('Package')}:{fields.get('Architecture', '')}"
                found[name] = fields["Version"]
    elif (root / "var/lib/rpm").is_dir() or (root / "usr/lib/sysimage/rpm").is_dir():
        form = r"%{NAME}:%{ARCH} %{EVR}\n"
        for line in runner.run("rpm", "-qa", "--queryformat", form).text.splitlines():
            name, _, version = line.partition(" ")
            found[name] = version
    return dict(sorted(found.items()))
