"""Record, read, explain and compare profiles of CUDA, ROCm and CPU programs.

Reading needs no GPU and no profiler, and no code inside a profile is ever run. Start with `load.py`.
"""
