"""Planners: predict memory, time, speed and cost of training and serving from closed forms.

A planner never measures; if no calibration applies, it gives no figure and says so. Start with
`training/distributed.py`.
"""
