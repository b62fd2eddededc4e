"""Blocks that put torch's default generators on a named stream."""
