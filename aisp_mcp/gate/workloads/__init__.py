"""Two commits of a repository, each built in an environment of its own, judged on a workload.

It runs the repository's code and its tests as the user, and isolates nothing. Start with `judge.py`. The pytest plugin
uses the same processes and rounds.
"""
