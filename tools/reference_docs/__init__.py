"""The text of generated reference pages and surface snapshots, from the registry, the settings and the sources.

gen.py writes the files. Start with `pages.py`.
"""
