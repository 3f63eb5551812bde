"""What the parent, the verifier and the workers share: memory, messages, and how a benchmark file is loaded.

It decides nothing and trusts nobody; both sides of the boundary import it. Start with `layout.py`.
"""
