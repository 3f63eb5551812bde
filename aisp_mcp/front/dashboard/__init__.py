"""The dashboard: runs, machine, jobs and planners as web pages, rendered on the server or exported as files.

Start with `site.py`, which lists the pages.
"""
