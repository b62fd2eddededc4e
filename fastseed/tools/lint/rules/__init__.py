"""The rules of the linter, one subject a module."""
