"""Inputs of calls: files, and the bank that stores tensors. No worker learns a seed. Start with `bank.py`."""
