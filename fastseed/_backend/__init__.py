"""The compiled code, the registered operators, and the NumPy reference that stands in for them.

``derive`` computes keys and orders, ``ops`` holds the operators, ``tensors`` checks arguments. Both
backends give the same bits.
"""
