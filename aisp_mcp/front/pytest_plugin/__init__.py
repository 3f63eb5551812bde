"""The pytest plugin: `pytest --aisp` judges the benchmarks of a test suite, with pytest-benchmark's calls.

It runs the unmodified tests in separate processes and times them from outside. It isolates nothing, so use it only for
your own code. Start with `plugin.py`.
"""
