"""The same weights on any number of ranks, to the bit."""
