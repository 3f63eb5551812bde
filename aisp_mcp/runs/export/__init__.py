"""Stored runs as files: report, CSV, JSON, Markdown, JUnit, badge, comment, PDF.

It reads records; it never measures or judges. Start with `tools.py`.
"""
