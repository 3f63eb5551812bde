"""The generated reference pages and surface snapshots, written from the registry, the settings and the sources.

It returns texts and never writes a file: the repository's generator does. Start with `pages.py`.
"""
