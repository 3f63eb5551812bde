"""Sequential disk rates, by fio or by system calls.

It writes one temporary file and removes it. Start with `probe.py`.
"""
