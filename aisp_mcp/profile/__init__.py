"""Record, read, explain and compare profiles of CUDA, ROCm and CPU programs.

Reading needs no GPU and no profiler, and never runs code from a profile. Start with `load.py`.
"""
