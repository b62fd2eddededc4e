"""Proving that a training command repeats, resumes and depends on its seed alone."""
