"""Tools of the command line: environment capture, lint, verify."""
