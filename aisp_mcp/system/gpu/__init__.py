"""GPUs through NVML and nvidia-smi: facts, energy, and which device benchmarks use.

Every driver call has a deadline. Start with `nvml.py`.
"""
