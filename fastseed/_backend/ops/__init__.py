"""The registered operators, ``torch.ops.fastseed``: schema, fake and NumPy reference of each.

Operators protect memory alone: their callers check arguments.
"""
