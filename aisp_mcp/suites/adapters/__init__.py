"""Benchmarks written for other suites, as pairs of files that the harness measures. One file per format."""
