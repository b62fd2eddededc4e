"""Callbacks for training frameworks, each in a module of its own, imported only when asked for."""
