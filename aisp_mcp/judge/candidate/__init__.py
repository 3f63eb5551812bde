"""The untrusted side: all code that runs in the same process as a candidate.

Nothing it reports is trusted without evidence from outside. It imports the protocol and the API for benchmark authors.
Start with `main.py`.
"""
