"""Captures this process's environment: FOLDER [options] [-- whatever the command line shall hold].

``--all-env``, ``--unscrubbed`` (the scrubber lets everything through: the control of a test that
nothing gets past it), ``--load LIBRARY`` (maps it), ``--budget SECONDS``, ``--timeout SECONDS``.
"""

import argparse
import ctypes
import json
import sys

from fastseed.tools import environment


def unscrub():
    from fastseed.tools.environment import collect, git, redact

    for name in ("text", "strict", "_common"):
        setattr(redact.Scrubber, name, lambda self, text: text)
    redact.Scrubber.code = lambda self, text, literals: text
    redact.Scrubber.arguments = lambda self, arguments: list(arguments)
    redact.Scrubber.variable = lambda self, name, value, allowed: value
    git.scrub_patch = lambda text, scrubber: text
    assert collect.Scrubber is redact.Scrubber


parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("folder")
parser.add_argument("--all-env", action="store_true")
parser.add_argument("--unscrubbed", action="store_true")
parser.add_argument("--load", action="append", default=[])
parser.add_argument("--timeout", type=float, default=10.0)
parser.add_argument("--budget", type=float, default=60.0)
cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
args = parser.parse_args(sys.argv[1:cut])
for library in args.load:
    ctypes.CDLL(library)
if args.unscrubbed:
    unscrub()
found = environment.capture(
    args.folder, all_env=args.all_env, timeout=args.timeout, budget=args.budget
)
print(json.dumps(found.header))
