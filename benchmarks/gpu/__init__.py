"""One run on a machine with a GPU: what was built, whether it is right, and how fast it is."""
