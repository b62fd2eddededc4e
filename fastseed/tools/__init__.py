"""Tools of the command line: environment capture, states in checkpoints, verify."""
