"""Print what a program that `fastseed run` started finds, as one line of JSON."""

import json
import os
import sys

import fastseed
from fastseed.determinism import hash_seed

fastseed.init()
report = fastseed.deterministic()
fastseed.reseed(0)
found = {
    "arguments": sys.argv[1:],
    "master_seed": fastseed.get_master_seed(),
    "hash": hash_seed.found(),
    "order": list({"a", "b", "c", "d", "e", "f", "g"}),
    "late": [row.setting for row in report.rows if row.status == "too late"],
    "algorithms": report["torch.use_deterministic_algorithms"].status,
    "run_dir": os.environ.get("FASTSEED_RUN_DIR"),
    "rank": int(os.environ.get("RANK", 0)),
}
line = json.dumps(found) + "\n"
sys.stdout.write(line)
sys.stdout.flush()
os._exit(0)
