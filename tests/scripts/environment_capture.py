"""Record this process's environment: FOLDER [--plain] [anything].

``--plain`` stores every variable and uncommitted changes (the control of a test that looks for
secrets).
"""

import json
import sys

from fastseed.tools import environment

plain = "--plain" in sys.argv
if plain:
    environment.sources.variables = dict
print(json.dumps(environment.capture(sys.argv[1], patches=plain)["about"]))
