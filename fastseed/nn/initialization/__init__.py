"""Initialization by name: the same weights however a model is laid out over devices."""
