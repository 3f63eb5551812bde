"""Planners: predict memory, time, speed and cost of training and serving from closed forms.

A planner never measures; where no calibration applies it abstains and says so. Start with `training/distributed.py`.
"""
