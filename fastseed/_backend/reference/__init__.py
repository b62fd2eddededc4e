"""The specifications of ``docs/`` in plain NumPy: the oracle of the tests and the fallback."""
