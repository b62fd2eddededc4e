"""Capture this process's environment: FOLDER [options] [-- the rest of the command line].

``--plain`` stores plain values in place of hashes, and uncommitted changes (the control of a test
that looks for secrets), ``--load LIBRARY`` maps it.
"""

import argparse
import ctypes
import json
import sys

from fastseed.tools import environment
from fastseed.tools.environment import keyed_hash

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("folder")
parser.add_argument("--plain", action="store_true")
parser.add_argument("--load", action="append", default=[])
cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
args = parser.parse_args(sys.argv[1:cut])
for library in args.load:
    ctypes.CDLL(library)
if args.plain:
    keyed_hash.Hasher.__call__ = lambda self, kind, value: (
        value if isinstance(value, str) else value.decode("utf-8", "replace")
    )
found = environment.capture(args.folder, patches=args.plain)
print(json.dumps(found.header))
