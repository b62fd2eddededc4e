"""The parts of ``demo.py``: ``launch`` starts jobs, ``results`` judges them, ``report`` shows them.

None of them imports fastseed or torch, and none imports another except ``report`` from ``results``:
what they know of a run is what its ranks wrote to disk. So does ``layouts``, which judges and shows
what ``train_transformer_any_layout.py`` wrote; ``masks`` is the part of that script that looks at
its model from outside.
"""
