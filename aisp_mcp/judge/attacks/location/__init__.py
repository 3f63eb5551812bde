"""Validity issues of the category location."""
