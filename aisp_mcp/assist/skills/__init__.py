"""The shipped skills: Markdown folders that teach an agent how to use the tools for one kind of task.

They contain only instructions; no code here runs them. Start with `files.py`.
"""
