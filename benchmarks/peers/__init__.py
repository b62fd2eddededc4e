"""What the cases run against. Each module raises Unavailable where its peer is not installed."""
