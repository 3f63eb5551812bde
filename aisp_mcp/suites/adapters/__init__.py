"""Benchmarks written for other suites, as pairs of files that the judge measures; one file per format.

A problem's own code runs only in an isolated child process. Start with `adapt.py`.
"""
