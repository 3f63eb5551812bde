"""Find targets: discover files, resolve names, read expectations, adapt other suites.

Files are parsed, never imported, until a separate process loads them. Start with `discovery.py`.
"""
