"""Inputs of calls: random tensors with secret statistics, adversarial kinds, files, and the bank that stores them.

No worker learns a seed. Start with `rng.py`.
"""
