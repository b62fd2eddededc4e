"""Randomness in data loading: an order, workers and samples that do not depend on how many."""
