"""Tools of the command line: environment capture, lint, states in checkpoints, verify."""
