"""The two schemes: how a reseed sets all generators."""
