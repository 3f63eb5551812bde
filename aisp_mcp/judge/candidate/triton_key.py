"""Triton, with the hash of its own files.

The hash is part of the key of every kernel. Each process that compiles or loads one spends 0.4 s on it, unless the
process that it was forked from has computed it.
"""

from contextlib import suppress

with suppress(ImportError):
    from triton.runtime.cache import triton_key

    triton_key()
