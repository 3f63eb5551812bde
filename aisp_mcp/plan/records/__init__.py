"""The records that planners take and answer.

No function here computes anything. Start with `plan.py`.
"""
