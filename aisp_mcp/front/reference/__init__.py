"""The text of generated reference pages and surface snapshots, from the registry, the settings and the sources.

`tools/gen.py` writes the files. Start with `pages.py`.
"""
