"""What fetches a sample: its scope, its streams, and the generators of a worker."""
