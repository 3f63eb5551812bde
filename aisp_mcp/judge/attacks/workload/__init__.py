"""Validity issues of the category workload."""
