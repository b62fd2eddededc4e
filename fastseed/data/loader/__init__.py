"""Loaders, their iterations, and the loop over steps."""
