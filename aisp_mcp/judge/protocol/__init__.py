"""Code shared by the parent, the verifier and the workers: memory layout, messages, and loading of benchmark files.

It makes no decisions and trusts no input; trusted and untrusted code both import it. Start with `layout.py`.
"""
