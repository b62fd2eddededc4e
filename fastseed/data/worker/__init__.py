"""Samples as they are fetched: in which scope, with which streams, and by which process."""
