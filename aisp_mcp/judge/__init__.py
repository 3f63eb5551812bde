"""Measure a pair in isolated processes and judge it. See docs/harness.md."""
