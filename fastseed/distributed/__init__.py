"""Which rank this process is, where it is in a mesh, and whether all ranks agree."""
