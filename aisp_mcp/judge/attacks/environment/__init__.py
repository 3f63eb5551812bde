"""Validity issues of the category environment."""
