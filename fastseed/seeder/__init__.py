"""The Seeder, the process-wide functions, the registry, states and fork_rng."""
