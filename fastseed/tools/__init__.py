"""What the command line runs: environment capture, lint, verify."""
