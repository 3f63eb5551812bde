"""Altered baselines, and which of them a specification's contract accepts.

A mutant runs the baseline with one change: a torch operation works on a sample, a term is dropped, an answer is reused.
Nothing is timed, and nothing here knows any particular benchmark. Start with `search.py`; `operations.py` and
`programs.py` contain the changes, `trial.py` judges.
"""
