"""The registered operators, ``torch.ops.fastseed``, by subject.

A file has the schema, the fake and the NumPy reference of each of its operators; the native library
implements them in csrc/ops. Operators protect memory alone: their callers check arguments.
"""
