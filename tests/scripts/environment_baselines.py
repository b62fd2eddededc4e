"""Write what tools output on this process: LIBRARY SWITCH FOLDER TOOL…, each to FOLDER/TOOL.txt.

``fastseed`` writes a capture to FOLDER/fastseed; the others are `torch.utils.collect_env`,
`watermark` and `pip freeze`. LIBRARY is mapped and cuDNN's `benchmark` set to SWITCH (0 or 1)
before.
"""

import contextlib
import ctypes
import subprocess
import sys
from pathlib import Path

import torch


def collect_env(_):
    from torch.utils.collect_env import main

    main()


def watermark(_):
    from watermark import watermark

    about = ("python", "machine", "hostname", "githash", "gitbranch", "gitrepo", "conda", "gpu")
    packages = "torch,numpy,frobnicator,torchfrob,pinned,mylib"
    print(watermark(packages=packages, **dict.fromkeys(about, True)))


def pip_freeze(_):
    command = [sys.executable, "-m", "pip", "freeze", "--disable-pip-version-check"]
    print(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def fastseed(folder):
    from fastseed.tools import environment

    environment.capture(folder / "fastseed")


library, switch, folder, *tools = sys.argv[1:]
ctypes.CDLL(library)
torch.backends.cudnn.benchmark = switch == "1"
Path(folder).mkdir()
for tool in tools:
    with open(Path(folder, f"{tool}.txt"), "w") as file, contextlib.redirect_stdout(file):
        globals()[tool](Path(folder))
