"""What a tool says of this process: TOOL LIBRARY SWITCH FOLDER. It prints text, one fact a line.

``ours`` writes a capture to FOLDER; the peers are `torch.utils.collect_env`, `watermark` and
`pip freeze` (what conda-env-compare and its like compare). LIBRARY is mapped and cuDNN's
`benchmark` set to SWITCH (0 or 1) before, as a training script would have done.
"""

import ctypes
import subprocess
import sys

import torch

tool, library, switch, folder = sys.argv[1:]
ctypes.CDLL(library)
torch.backends.cudnn.benchmark = switch == "1"
if tool == "ours":
    from fastseed import environment

    environment.capture(folder)
elif tool == "collect_env":
    from torch.utils.collect_env import main

    main()
elif tool == "watermark":
    from watermark import watermark

    about = ("python", "machine", "hostname", "githash", "gitbranch", "gitrepo", "conda", "gpu")
    packages = "torch,numpy,frobnicator,torchfrob,pinned,mylib"
    print(watermark(packages=packages, **dict.fromkeys(about, True)))
elif tool == "pip_freeze":
    subprocess.run(
        [sys.executable, "-m", "pip", "freeze", "--disable-pip-version-check"], check=True
    )
