"""Validity issues of the category evaluation."""
