"""Measure an OpenAI-compatible server over HTTP with an installed load client, alone or against a second one.

The client is trusted only after it has measured a stub with known latencies; the texts of answers are not compared.
Start with `measuring.py`.
"""
