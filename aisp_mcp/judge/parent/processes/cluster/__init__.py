"""Ranks on other nodes: the relay that runs there, and the parent's handles on it."""
