"""The Seeder, the process-wide functions, the registry, states, fork_rng and os.fork."""
