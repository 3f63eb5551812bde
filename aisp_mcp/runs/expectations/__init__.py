"""Grade a run against `expect.yaml`, and rewrite entries that a run contradicts.

An expectation never changes a verdict. Start with `accepting.py`.
"""
