"""What bounds a profile or a stored run: bottlenecks, memory access, communication, data loading.

Each answer names the counters or intervals that show it. Start with `bottlenecks.py`.
"""
