"""The compiled code, the operators, and the NumPy reference, which gives the same bits."""
