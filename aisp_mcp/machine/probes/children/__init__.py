"""The programs of the probes' child processes, one per probe.

Only these import torch; they print one marked JSON line and store nothing. Start with `child.py`.
"""
