"""Validity issues of the category statistical."""
