"""Validity issues of the category distributed."""
