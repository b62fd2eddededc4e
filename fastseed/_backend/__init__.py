"""The compiled operators, their fakes, and the NumPy reference that stands in for them.

Everything above asks ``fastseed._backend.derive_ops`` and ``fastseed._backend.draw_ops``,
which give the same bits on either backend.
"""
