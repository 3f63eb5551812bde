"""Validity issues of the category cuda."""
