"""Altered baselines that a target's contract accepts."""
