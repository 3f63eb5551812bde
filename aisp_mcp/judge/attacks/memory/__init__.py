"""Validity issues of the category memory."""
