"""Problems of this machine, ranked: first what makes results wrong, then what makes them slow or noisy.

A finding names its evidence and a next step; it never repairs anything. Start with `ranking.py`.
"""
