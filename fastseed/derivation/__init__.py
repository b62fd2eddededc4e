"""Names, coordinates and keys, and the process-wide context that they are derived in."""
