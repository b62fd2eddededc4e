"""Noise that is never stored: added to parameters, undone to the bit, replayed from a log."""
