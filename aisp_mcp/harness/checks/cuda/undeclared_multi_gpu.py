"""Undeclared Multi-GPU.

What happens: A part of the work is sent to a device that was not declared.
Why it lies: Two devices are compared with one.
What we do: One visible device per worker; processes it has started are reported.
Limits: A child that makes another device visible to itself reaches it: device nodes are shared at every level.
"""
