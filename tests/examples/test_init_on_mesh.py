"""The example that initializes a model prints one digest, however many ranks there are."""

import re
import subprocess
import sys
from pathlib import Path

from helpers.support import clean_environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "init_on_mesh.py"


def digest(ranks: int, *arguments: str) -> str:
    """Return what the example prints last, after checking that it was on ``ranks`` ranks.

    Its exit status is no criterion: threads of gloo that still let go of tensors while the
    interpreter ends abort the process now and then, also where nothing of fastseed is used.
    """
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    done = subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else ()), EXAMPLE, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(OMP_NUM_THREADS="1"),
    )
    found = re.findall(rf"^{ranks} ranks as \(.*\): ([0-9a-f]{{64}})$", done.stdout, re.MULTILINE)
    assert len(found) == 1, f"{done.stdout}\n{done.stderr}"
    return found[0]


def test_one_digest_for_every_mesh():
    alone = digest(1)
    assert digest(2) == alone
    assert digest(1, "--seed", "1") != alone
