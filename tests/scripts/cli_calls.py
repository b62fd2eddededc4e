"""Runs `fastseed` once for each line of arguments (a JSON list of lists); prints the exit codes."""

import json
import sys

from fastseed.cli import main

codes = [main(arguments) for arguments in json.loads(sys.argv[1])]
sys.stdout.flush()
print(json.dumps(codes))
