"""Adapters that give a random library the state that belongs to a key; pools of generators."""
