"""The opening of every summary: where the time went, in sentences that name the rows of their numbers.

It computes nothing that is not in the tables. Start with `words.py`.
"""
