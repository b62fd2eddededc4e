"""The benchmarks of a GPU: one process a contender, JSON lines as it goes."""
