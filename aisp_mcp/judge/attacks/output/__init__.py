"""Validity issues of the category output."""
