"""The first suite of a repository: what it has that can be measured, as tests and a workflow that judge each change.

It never measures; `pytest --aisp` and `aisp bench gate` do. Start with `survey.py`.
"""
