"""The core that every feature plugs into: the registry of tools, their context, and the path from a call to an
envelope.

It imports no feature: dispatch finds tools by name. Start with `registry.py`.
"""
