"""The opening of every summary: where the time went, in sentences whose numbers name the rows they come from.

It computes nothing that the tables do not hold. Start with `words.py`.
"""
