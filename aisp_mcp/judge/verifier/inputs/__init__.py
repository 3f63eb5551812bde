"""Inputs of calls: random tensors with secret statistics, adversarial kinds, files, and what is kept of them.

No worker learns a seed. Start with `rng.py`.
"""
