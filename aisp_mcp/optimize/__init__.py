"""Sessions in which an agent optimises a target: a workspace, a budget, a board.

A submission is judged like any other candidate, and the best one is measured again before it is confirmed. Start with
`sessions.py`.
"""
