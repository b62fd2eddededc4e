"""Switches of torch that decide about determinism, PYTHONHASHSEED, starting a process."""
