"""Baselines of the cases; a module raises Unavailable where its baseline is not installed."""
