"""Find the tool that answers a question, and call any tool by name.

It never runs a search outside this process. Start with `suggest.py`.
"""
