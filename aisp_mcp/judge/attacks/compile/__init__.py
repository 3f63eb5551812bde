"""Validity issues of the category compile."""
