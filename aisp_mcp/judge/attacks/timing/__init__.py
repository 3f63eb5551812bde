"""Validity issues of the category timing."""
