"""Find targets: discover files, resolve names, read expectations, adapt other suites.

Files are parsed, never imported, until a process of their own loads them. Start with `discovery.py`.
"""
