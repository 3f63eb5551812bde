"""C++ and CUDA C++ candidates: read the launch header, compile once, call the function on tensors.

Compilers run in the trusted step before a measurement, never inside a timed process. Start with `launch_header.py`.
"""
