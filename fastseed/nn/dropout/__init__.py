"""Dropout whose masks are functions of where an element is, in layers and in converted models."""
