"""Ranks of a target: how many, and the environment that a caller may give them."""
