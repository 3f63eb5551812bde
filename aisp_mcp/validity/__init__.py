"""The validity issues: what each one is, an attack that tries it, and honest code that resembles it.

Nothing here is imported by a measurement. Start with `corpus.py`.
"""
